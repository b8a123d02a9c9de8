"""What a change takes away: for each rule, changes that it must find, and changes that it must let pass.

A change is written as files: a path, and the lines of one hunk with their tags. Several files are in one tuple.
"""

from __future__ import annotations

import difflib
import json

import pytest

from council.agents.scan.change import read_changes
from council.agents.scan.finding import Finding
from council.agents.scan.pieces import pieces_of
from council.agents.scan.removed import findings

Change = tuple[str, ...]  # path, hunk, path, hunk …


def found_in(change: Change) -> list[Finding]:
    text = ""
    for path, body in zip(change[::2], change[1::2], strict=True):
        lines = body.strip("\n").split("\n")
        old = sum(not line.startswith("+") for line in lines)
        new = sum(not line.startswith("-") for line in lines)
        head = f"--- a/{path}\n+++ b/{path}\n"
        if all(line.startswith("-") for line in lines):
            head = f"diff --git a/{path} b/{path}\ndeleted file mode 100644\n--- a/{path}\n+++ /dev/null\n"
            text += f"{head}@@ -1,{old} +0,0 @@\n" + "\n".join(lines) + "\n"
            continue
        body = "\n".join(line or " " for line in lines)
        text += f"{head}@@ -21,{old} +21,{new} @@\n{body}\n"
    reading = read_changes(text)
    assert not reading.faults
    found, unread = findings(reading.files, pieces_of(reading.files))
    assert unread == []
    return found


# rule, weight, changes
BAD: list[tuple[str, str, list[Change]]] = [
    ("test-removed", "ask", [
        ("tests/test_pay.py", """
 def test_a():
     assert pay(1) == 1
-
-def test_refund():
-    assert refund(1) == -1
""", "app/pay.py", """
 def refund(x):
-    return -x
+    return 0
"""),
        ("src/pay.test.js", """
 it('pays', () => { expect(pay(1)).toBe(1) })
-it('refunds', () => { expect(refund(1)).toBe(-1) })
 it('counts', () => { expect(count()).toBe(0) })
""", "src/pay.js", """
 function refund(x) {
-  return -x
+  return 0
 }
"""),
        ("pay/pay_test.go", """
 }
-func TestRefund(t *testing.T) {
-    if refund(1) != -1 { t.Fatal("no") }
-}
 func TestPay(t *testing.T) {
""", "pay/pay.go", """
 func refund(x int) int {
-    return -x
+    return 0
 }
"""),
        ("src/test/java/PayTest.java", """
     private int x;
-    @Test
-    void refundsAll() {
-        assertEquals(-1, refund(1));
-    }
     @Test
     void pays() {
""", "src/main/java/Pay.java", """
     int refund(int x) {
-        return -x;
+        return 0;
     }
"""),
        ("tests/PayTest.php", """
     }
-    public function testRefund(): void
-    {
-        $this->assertSame(-1, refund(1));
-    }
     public function testPay(): void
""", "src/Pay.php", """
     public function refund(int $x): int
     {
-        return -$x;
+        return 0;
     }
"""),
    ]),
    ("test-file-deleted", "ask", [
        ("tests/test_pay.py", """
-def test_pay():
-    assert pay(1) == 1
"""),
        ("spec/pay.spec.ts", """
-it('pays', () => {
-  expect(pay(1)).toBe(1)
-})
"""),
        ("pay/pay_test.go", """
-func TestPay(t *testing.T) {
-    pay(1)
-}
"""),
        ("src/test/java/PayTest.java", """
-    @Test
-    public void pays() {
-        assertEquals(1, pay(1));
-    }
"""),
        ("tests/PayTest.php", """
-    public function testPay(): void
-    {
-    }
"""),
    ]),
    ("test-skipped", "ask", [
        ("tests/test_pay.py", """
+@pytest.mark.skip(reason="flaky")
 def test_refund():
     assert refund(1) == -1
"""),
        ("tests/test_pay.py", """
     def test_refund(self):
+        self.skipTest("later")
         self.assertEqual(refund(1), -1)
"""),
        ("src/pay.test.js", """
-it('refunds', () => {
+xit('refunds', () => {
   expect(refund(1)).toBe(-1)
"""),
        ("src/pay.test.ts", """
-  it('refunds', () => {
+  it.skip('refunds', () => {
     expect(refund(1)).toBe(-1)
"""),
        ("pay/pay_test.go", """
 func TestRefund(t *testing.T) {
+    t.Skip("broken")
     if refund(1) != -1 {
"""),
        ("src/test/java/PayTest.java", """
     @Test
+    @Disabled("fails since the new gateway")
     void refundsAll() {
         assertEquals(-1, refund(1));
"""),
        ("tests/PayTest.php", """
     public function testRefund(): void
     {
+        $this->markTestSkipped('later');
         $this->assertSame(-1, refund(1));
"""),
        ("Tests/PayTests.cs", """
     [Test]
+    [Ignore("later")]
     public void Refunds()
     {
"""),
        ("spec/pay_spec.rb", """
   it 'refunds' do
+    skip 'later'
     expect(refund(1)).to eq(-1)
   end
"""),
    ]),
    ("assertion-removed", "ask", [
        ("tests/test_pay.py", """
 def test_refund():
     got = refund(1)
-    assert got == -1
     close()
"""),
        ("tests/test_pay.py", """
         got = refund(1)
-        self.assertEqual(got, -1)
         self.close()
"""),
        ("src/pay.test.js", """
   const got = refund(1)
-  expect(got).toBe(-1)
   close()
"""),
        ("src/test/java/PayTest.java", """
         var got = refund(1);
-        assertEquals(-1, got);
         close();
"""),
        ("tests/PayTest.php", """
         $got = refund(1);
-        $this->assertSame(-1, $got);
         $this->close();
"""),
    ]),
    ("guard-removed", "stop", [
        ("src/routes.js", """
-function setup(app) {
-  app.use(requireAuth);
+function setupApp(app) {
   app.get('/x', list);
 }
"""),
        ("app/routes.py", """
-def routes(app):
-    app.add_middleware(AuthMiddleware)
+def make_routes(app):
     app.get("/x", list_x)
"""),
        ("src/routes.js", """
-r.use(requireAuth);
-const h = f(1);
+const h = g(1);
 r.get('/a', h);
+function g(x) { return x; }
"""),
        ("internal/h.go", """
 func H(r *R) error {
-    if !isOwner(r) {
-        return errForbidden
-    }
-    del(r)
+    del2(r)
     return nil
 }
+func del2(r *R) { del(r) }
"""),
        ("src/Orders.java", """
     @DeleteMapping("/{id}")
-    @PreAuthorize("hasRole('ADMIN')")
     public void delete(long id) {
         orders.delete(id);
"""),
        ("src/Orders.cs", """
     [HttpDelete("{id}")]
-    [Authorize(Roles = "admin")]
     public void Delete(int id)
     {
"""),
        ("app/controllers/orders_controller.rb", """
 class OrdersController < ApplicationController
-  before_action :authenticate_user!
   def destroy
"""),
        ("src/app.js", """
 app.use(express.json())
-app.use(csrfProtection)
 app.use('/orders', orders)
"""),
        ("src/orders.ts", """
   const order = await find(id)
-  if (!user.isAdmin) {
-    return res.status(403).end()
-  }
   await order.remove()
"""),
        ("app/controllers/orders_controller.rb", """
   def destroy
-    return head :forbidden unless current_user.admin?
     @order.destroy
"""),
        ("app/Orders.php", """
         $order = $this->find($id);
-        $this->authorize('delete', $order);
         $order->delete();
"""),
        ("src/Orders.kt", """
     fun delete(id: Long) {
-        if (!user.isAdmin) throw Forbidden()
         orders.delete(id)
"""),
        ("orders/orders.go", """
     order := find(id)
-    if !user.IsAdmin {
-        return errForbidden
-    }
     return remove(order)
"""),
    ]),
    ("guard-removed", "ask", [
        ("src/pay.js", """
   const sum = read()
-  if (sum <= 0) {
-    throw new RangeError('sum')
-  }
   send(sum)
"""),
        ("pay.go", """
     row, err := find(id)
-    if err != nil {
-        return nil, err
-    }
     return row.Sum, nil
"""),
        ("Pay.java", """
         long sum = read();
-        if (sum <= 0) throw new IllegalArgumentException("sum");
         send(sum);
"""),
        ("pay.rb", """
     sum = read
-    raise ArgumentError, 'sum' if sum <= 0
     send(sum)
"""),
        ("pay.php", """
     $sum = read();
-    if ($sum <= 0) {
-        throw new RangeException('sum');
-    }
     send($sum);
"""),
    ]),
    ("test-emptied", "stop", [
        ("tests/test_pay.py", """
 def test_refund():
-    got = refund(1)
-    assert got == -1
+    pass
"""),
        ("tests/test_pay.py", """
 def test_refund():
+    return
     got = refund(1)
     assert got == -1
"""),
        ("tests/test_pay.py", """
     def test_refund(self):
-        self.assertEqual(refund(1), -1)
+        ...

"""),
        ("src/pay.test.js", """
 it('refunds', () => {
+  return;
   expect(refund(1)).toBe(-1)
"""),
        ("pay/pay_test.go", """
 func TestRefund(t *testing.T) {
+    return
     require.Equal(t, -1, refund(1))
"""),
    ]),
    ("middleware-removed", "stop", [
        ("site/settings.py", f"""
 MIDDLEWARE = [
     "django.middleware.common.CommonMiddleware",
-    "{name}",
     "django.middleware.locale.LocaleMiddleware",
 ]
""")
        for name in (
            "django.middleware.csrf.CsrfViewMiddleware", "django.middleware.security.SecurityMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware", "app.middleware.RateLimitMiddleware",
            "django.middleware.clickjacking.XFrameOptionsMiddleware",
        )
    ]),
    ("guard-cut", "stop", [
        ("src/show.js", """
-if (req.isAuthenticated() && !user.is_admin) { show(); }
+if (!user.is_admin) { show(); }
"""),
        ("src/routes.js", """
-router.delete('/orders/:id', requireAdmin, remove)
+router.delete('/orders/:id', remove)
 router.get('/orders', list)
"""),
        ("app/routes.py", """
-    app.add_route("/orders", list_orders, dependencies=[Depends(require_login)])
+    app.add_route("/orders", list_orders, dependencies=[])
     app.add_route("/news", news)
"""),
        ("app/views.py", """
 class Orders(APIView):
-    permission_classes = [IsAuthenticated, IsOwner]
+    permission_classes = [IsOwner]
     queryset = ORDERS
"""),
        ("src/routes.ts", """
-app.post('/login', rateLimit({ max: 5 }), login)
+app.post('/login', login)
 app.get('/', home)
"""),
        ("app/api.py", """
-async def remove(order_id: int, user: User = Depends(require_admin)):
+async def remove(order_id: int):
     await orders.remove(order_id)
"""),
        ("app/views.py", """
 class Orders(APIView):
-    permission_classes = [IsAuthenticated]
+    permission_classes = [AllowAny]
     queryset = ORDERS
"""),
        ("src/Security.java", """
-            .requestMatchers("/orders/**").authenticated()
+            .requestMatchers("/orders/**").permitAll()
             .and()
"""),
        ("main.go", """
-    r.Handle("/orders", requireLogin, orders)
+    r.Handle("/orders", orders)
     r.Handle("/", home)
"""),
    ]),
    ("refusal-removed", "stop", [
        ("internal/auth.go", """
     session, err := store.Get(r.Context(), cookie.Value)
     if err != nil {
-        http.Error(w, "unauthorized", http.StatusUnauthorized)
-        return
+        log.Printf("session store: %v", err)
     }
     next.ServeHTTP(w, r)
"""),
        ("src/orders.js", """
   if (!order.isOpen(req.user)) {
-    return res.sendStatus(403);
+    console.warn('the order is not open');
   }
   await order.close();
"""),
        ("Orders.java", """
         if (order.isForeign(user)) {
-            throw new AccessDeniedException("not yours");
+            log.warn("not the user's order");
         }
         order.close();
"""),
        ("app/orders_controller.rb", """
     if foreign?(order)
-      head :forbidden
+      logger.warn "not the user's order"
     end
     order.close!
"""),
        ("Orders.php", """
         if ($order->isForeign($user)) {
-            abort(403);
+            error_log('not the order of the user');
         }
         $order->close();
"""),
    ]),
    ("filter-cut", "stop", [
        ("app/api.py", """
-    order = db.query(Order).filter(Order.id == order_id, Order.tenant_id == user.tenant_id).first()
+    order = db.get(Order, order_id)
     return show(order)
"""),
        ("src/notes.js", """
-  const note = await Note.findOne({ _id: req.params.id, owner: req.user.id });
-  if (!note) return res.sendStatus(404);
-  await note.deleteOne();
+  await Note.deleteOne({ _id: req.params.id });
   res.sendStatus(204);
"""),
        ("app/views.py", """
-    order = Order.objects.get(id=pk, owner=request.user)
+    order = Order.objects.get(id=pk)
     return show(order)
"""),
        ("app/views.py", """
-    order = get_object_or_404(Order, id=pk, user=request.user)
+    order = get_object_or_404(Order, id=pk)
     return show(order)
"""),
        ("src/orders.js", """
-  const order = await Order.findOne({ _id: id, owner: req.user.id })
+  const order = await Order.findOne({ _id: id })
   return order
"""),
        ("app/orders.py", """
-    rows = query.filter(Order.tenant_id == tenant.id).all()
+    rows = query.all()
     return rows
"""),
        ("app/orders.py", """
-    sql = "SELECT * FROM orders WHERE id = ? AND account_id = ?"
+    sql = "SELECT * FROM orders WHERE id = ?"
     return run(sql)
"""),
    ]),
    ("validation-cut", "stop", [
        ("app/page.rb", """
-    label = ERB::Util.html_escape(order.note)
+    label = order.note
     show(label)
"""),
        ("app/files.py", """
-    path = folder / secure_filename(upload.name)
+    path = folder / upload.name
     upload.save(path)
"""),
        ("src/page.js", """
-  box.innerHTML = DOMPurify.sanitize(text)
+  box.innerHTML = text
   show(box)
"""),
        ("page.php", """
-    echo '<p>' . htmlspecialchars($name) . '</p>';
+    echo '<p>' . $name . '</p>';
     close();
"""),
        ("app/run.py", """
-    command = "ls " + shlex.quote(folder)
+    command = "ls " + folder
     return command
"""),
    ]),
    ("validation-cut", "ask", [
        ("Api.java", """
-    void create(@Valid @RequestBody Order order) {
+    void create(@RequestBody Order order) {
         orders.add(order);
"""),
        ("src/pay.ts", """
-  const amount = charge(validateAmount(body.amount))
+  const amount = charge(body.amount)
   return amount
"""),
        ("app/names.rb", """
-    name = store(sanitize_name(given))
+    name = store(given)
     show(name)
"""),
        ("src/Mail.kt", """
-    val mail = send(validated(text))
+    val mail = send(text)
     return mail
"""),
        ("src/users.js", """
-  const user = create(validateUser(body))
+  const user = create(body)
   return user
"""),
    ]),
    ("lock-removed", "stop", [
        ("app/stock.go", """
 func f() {
-    l.Lock()
-    defer l.Unlock()
     g()
 }
"""),
        ("app/stock.py", """
     def take(self, n):
-        with self._lock:
-            left = self.left
-            self.left = left - n
+        left = self.left
+        self.left = left - n
         return self.left
"""),
        ("app/stock.py", """
 def move(a, b):
-    with transaction.atomic():
-        a.save()
-        b.save()
+    a.save()
+    b.save()
     return a
"""),
        ("stock.go", """
 func take(n int) {
-    mu.Lock()
-    defer mu.Unlock()
     left -= n
 }
"""),
        ("Stock.java", """
     @Override
-    @Transactional
     public void move(long a, long b) {
         take(a);
"""),
        ("Stock.java", """
     public void take(int n) {
-        synchronized (this) {
-            left -= n;
-        }
+        left -= n;
     }
"""),
    ]),
    ("removed-guard", "stop", [
        ("app/a.py", f"""
 def remove(user, order):
-    if {condition}:
-        raise {error}
     order.items.clear()
     order.remove()
""")
        for condition, error in (
            ("not user.is_admin", "PermissionError(user)"), ("order.owner != user", "Forbidden()"),
            ("order.locked", "ValueError('locked')"), ("not user.has_perm('x')", "PermissionDenied"),
            ("user.is_banned or order.closed", "Refused(order)"),
        )
    ]),
    ("removed-decorator", "stop", [
        ("app/views.py", f"""
 @app.route("/orders")
-{decorator}
 def orders():
     return render(Order.all())
""")
        for decorator in (
            "@login_required", "@permission_required('orders')", "@csrf_protect", "@ratelimit(5)", "@admin_only()",
        )
    ]),
    ("check-swallowed", "stop", [
        ("app/views.py", f"""
 def orders(request):
-    {call}
+    try:
+        {call}
+    except Exception:
+        {then}
     return render(Order.all())
""")
        for call, then in (
            ("verify_signature(request)", "pass"), ("check_permission(request.user)", "pass"),
            ("authenticate(request)", "return True"),
            ("authenticate(request)", "logger.warning('no')"),
            ("validate_token(request.token)", "pass"),
            ("self.authorize(request.user)", "pass"),
        )
    ]),
    ("became-async", "stop", [
        ("app/mail.py", """
-def send_mail(to):
+async def send_mail(to):
     return post(to)

 def welcome(user):
     send_mail(user.mail)
"""),
        ("app/mail.py", """
-def send_mail(to):
-    return post(to)
+async def send_mail(to):
+    return await post(to)
""", "app/users.py", """
 from app.mail import send_mail

 def welcome(user):
     ok = send_mail(user.mail)
-    return ok
+    return bool(ok)
"""),
        ("app/mail.py", """
 class Mailer:
-    def send_mail(self, to):
+    async def send_mail(self, to):
         return post(to)

     def welcome(self, user):
         self.send_mail(user.mail)
"""),
        ("app/mail.py", """
-def is_allowed(to):
+async def is_allowed(to):
     return to in LIST

 def welcome(user):
     if is_allowed(user.mail):
         go()
"""),
        ("app/mail.py", """
-def load(to):
+async def load(to):
     return to

""", "app/users.py", """
 from app import mail

 def welcome(user):
-    return 1
+    user.box = mail.load(user.mail).strip()
"""),
        ("src/quota.js", """
-export function overQuota(tenant) {
+export async function overQuota(tenant) {
   return usage(tenant) > tenant.limit;
 }
""", "src/middleware.js", """
 export default function quota(ctx) {
-  if (overQuota(ctx.tenant)) ctx.fail(429);
+  if (overQuota(ctx.tenant)) {
+    ctx.fail(429);
+  }
 }
"""),
    ]),
    ("became-async", "ask", [
        ("src/mail.js", """
-function sendMail(to) {
+async function sendMail(to) {
   return post(to)
 }
 function welcome(user) {
   sendMail(user.mail)
 }
"""),
        ("src/mail.ts", """
-export function isAllowed(to: string): boolean {
+export async function isAllowed(to: string): Promise<boolean> {
   return LIST.includes(to)
 }
""".replace(": Promise<boolean>", ": boolean"), "src/users.ts", """
 export function welcome(user: User) {
-  if (isAllowed(user.mail)) {
+  const ok = isAllowed(user.mail)
+  if (ok) {
     go()
   }
"""),
        ("src/mail.js", """
-const loadBox = (to) => post(to)
+const loadBox = async (to) => post(to)
 // the first box
 const box = loadBox(1)
"""),
        ("src/mail.js", """
 class Mail {
-  loadBox(to) {
+  async loadBox(to) {
     return post(to)
   }
   first() {
     this.loadBox(1)
   }
"""),
        ("src/mail.js", """
-export const loadBox = function (to) { return post(to) }
+export const loadBox = async function (to) { return post(to) }
 setup()
""", "src/users.js", """
 import { loadBox } from './mail'
-const a = 1
+const size = loadBox(1).length
 setup()
"""),
    ]),
    ("await-removed", "stop", [
        ("app/a.py", f"""
 async def welcome(user):
-    {old}
+    {new}
     return 1
""")
        for old, new in (
            ("await send_mail(user.mail)", "send_mail(user.mail)"),
            ("if not await is_allowed(user):", "if not is_allowed(user):"),
            ("rows = await load(user)", "rows = load(user)"),
            ("await self.session.commit()", "self.session.commit()"),
            ("assert await check(user)", "assert check(user)"),
        )
    ]),
    ("await-removed", "ask", [
        ("app/acl.py", """
 async def can_read(user, doc):
-    return await acl.check(user, doc)
+    return acl.check(user, doc)
"""),
        ("app/a.py", """
-from redis.asyncio import Redis
+from redis import Redis

 async def welcome(store: Redis):
-    await store.ping()
+    store.ping()
     return 1
"""),
        ("src/a.js", """
 async function welcome(user) {
-  await sendMail(user.mail)
+  sendMail(user.mail)
 }
"""),
        ("src/a.ts", """
-  const ok = await isAllowed(user)
+  const ok = isAllowed(user)
   if (ok) {
"""),
        ("A.cs", """
-        await SaveAsync(order);
+        SaveAsync(order);
         Close();
"""),
        ("src/a.js", """
-  if (!(await canRead(user))) {
+  if (!(canRead(user))) {
     deny()
"""),
    ]),
]  # fmt: skip

GOOD: list[Change] = [
    # A condition that is put into a function, a refusal with other words, and a query that is put into another file
    ("Installer.java", """
 void install(Path folder, ZipEntry entry) {
-    Path target = folder.resolve(entry.getName()).normalize();
-    if (!target.startsWith(folder)) {
-        throw new IOException("entry outside: " + entry.getName());
-    }
+    Path target = inside(folder, entry.getName());
     Files.copy(zip, target);
 }
+
+Path inside(Path folder, String name) {
+    Path target = folder.resolve(name).normalize();
+    if (!target.startsWith(folder)) {
+        throw new IOException("entry outside: " + name);
+    }
+    return target;
+}
"""),
    ("src/orders.js", """
   if (!order.isOpen(req.user)) {
-    return res.sendStatus(403);
+    return res.status(403).json({ error: 'closed' });
   }
   await order.close();
"""),
    ("src/notes.js", """
-  const note = await Note.findOne({ _id: req.params.id, owner: req.user.id });
-  await note.deleteOne();
+  await Note.deleteOne({ _id: req.params.id, owner: req.user.id });
   res.sendStatus(204);
"""),
    # A test alone, with code that it does not test, and with code that goes too
    ("tests/test_pay.py", """
 def test_a():
     assert pay(1) == 1
-
-def test_refund():
-    assert refund(1) == -1
"""),
    ("tests/test_pay.py", """
 def test_a():
     assert pay(1) == 1
-
-def test_refund():
-    assert refund(1) == -1
""", "app/mail.py", """
 def send(mail):
-    post(mail)
+    post(mail, 3)
"""),
    ("tests/test_pay.py", """
 def test_a():
     assert pay(1) == 1
-
-def test_refund():
-    assert refund(1) == -1
""", "app/pay.py", """
 def pay(x):
-    log(x)
-    log(x)
+    log(x, 2)
"""),
    # Tests that are renamed, moved, or go with their code
    ("tests/test_pay.py", """
-def test_refund():
+def test_refund_in_full():
     assert refund(1) == -1
"""),
    ("tests/test_pay.py", """
 x = 1
-def test_refund():
-    assert refund(1) == -1
 y = 1
""", "tests/test_refund.py", """
 z = 1
+def test_refund():
+    assert refund(1) == -1
"""),
    ("tests/test_pay.py", """
 x = 1
-def test_refund():
-    assert refund(1) == -1
 y = 1
""", "pay.py", """
 x = 1
-def refund(a):
-    return -a
 y = 1
"""),
    ("tests/test_pay.py", """
-def test_refund():
-    assert refund(1) == -1
""", "refund.py", """
-def refund(a):
-    return -a
"""),
    ("tests/test_pay.py", """
+@pytest.mark.skipif(sys.platform == "win32", reason="no sockets")
 def test_refund():
     assert refund(1) == -1
"""),
    ("pay/pay_test.go", """
 func TestRefund(t *testing.T) {
+    if testing.Short() {
+        t.Skip("slow")
+    }
     refund(1)
"""),
    ("tests/test_pay.py", """
+@pytest.mark.skip(reason="needs the new gateway")
+def test_gateway():
+    assert gateway()
+
 def test_refund():
     assert refund(1) == -1
"""),
    ("src/list.js", """
-  return list.filter(a)
+  return list.only(a)
 }
"""),
    # Assertions that say the same otherwise, or more
    ("tests/test_pay.py", """
-        self.assertEqual(total, 3)
+        assert total == 3
         close()
"""),
    ("tests/test_pay.py", """
-        self.assertEqual(found, True)
+        self.assertTrue(found)
         close()
"""),
    ("tests/test_pay.py", """
-        self.assertTrue(total)
+        self.assertEqual(total, 3)
         close()
"""),
    ("tests/test_pay.py", """
-    assert total == pytest.approx(3.2, abs=0.5)
+    assert total == pytest.approx(3.2, abs=0.01)
     close()
"""),
    ("src/pay.test.js", """
-  expect(total).toBe(3)
+  expect(total).toBe(4)
   close()
"""),
    ("tests/test_pay.py", """
-    assert a == 1
-    assert b == 2
+    assert (a, b) == (1, 2)
     close()
"""),
    # Guards that are replaced, moved or renamed
    ("src/routes.js", """
-router.delete('/orders/:id', requireAdmin, remove)
+router.delete('/orders/:id', requireRole('admin'), remove)
 router.get('/orders', list)
"""),
    ("src/routes.js", """
+router.use(requireAdmin)
-router.delete('/orders/:id', requireAdmin, remove)
+router.delete('/orders/:id', remove)
 router.get('/orders', list)
"""),
    ("src/Orders.java", """
+@PreAuthorize("hasRole('ADMIN')")
 class Orders {
-    @PreAuthorize("hasRole('ADMIN')")
     public void delete(long id) {
"""),
    ("src/app.js", """
-import { requireAdmin, list } from './auth'
+import { list } from './auth'
 list()
"""),
    ("app/views.py", """
-    order = Order.objects.get(id=pk, owner=request.user)
+    order = Order.objects.filter(owner=request.user).get(id=pk)
     return show(order)
"""),
    ("app/views.py", """
-    order = Order.objects.get(id=pk, color=color)
+    order = Order.objects.get(id=pk)
     return show(order)
"""),
    ("app/stock.py", """
     def take(self, n):
-        with self._lock:
-            left = self.left
-            self.left = left - n
+        with self._mutex:
+            left = self.left
+            self.left = left - n
         return self.left
"""),
    ("orders/orders.go", """
-    if !user.IsAdmin {
-        return errForbidden
-    }
-    return remove(order)
+    return removeAs(user, order)
 }
"""),
    ("app/a.py", """
-    if width < 3:
+    if width <= 3:
         go()
"""),
    ("app/a.py", """
-    if a and b:
+    if a or b:
         go()
"""),
    ("app/http.py", """
-def fetch(url, verify=False):
+def fetch(url, verify=True):
     return get(url)
"""),
    ("app/http.py", """
-def fetch(url, follow=True):
+def fetch(url, follow=False):
     return get(url)
"""),
    ("app/views.py", """
 def orders(request):
-    verify_signature(request)
+    try:
+        verify_signature(request)
+    except Exception as error:
+        raise Refused() from error
     return render(Order.all())
"""),
    ("app/a.py", """
 def connect(verify):
     if verify is False:
-        return plain()
+        context = plain()
     return context
"""),
    # Functions whose callers are adapted
    ("app/mail.py", """
-def send_mail(to):
+async def send_mail(to):
     return post(to)
""", "app/users.py", """
 def notify(user):
     return user.name

 def welcome(user):
-    return 1
+    return 2
     notify(user)
"""),
    ("app/mail.py", """
-def send_mail(to):
+async def send_mail(to):
     return post(to)

-def welcome(user):
-    send_mail(user.mail)
+async def welcome(user):
+    await send_mail(user.mail)
"""),
    ("app/mail.py", """
-def send_mail(to):
+async def send_mail(to):
     return post(to)

 def welcome(user):
     asyncio.run(send_mail(user.mail))
"""),
    ("app/mail.py", """
-def send_mail(to):
+async def send_mail(to):
     return post(to)

 def welcome(user, mailer):
     mailer.post(user.mail)
"""),
    ("app/repo.py", """
 class Repo:
-    def get(self, key):
+    async def get(self, key):
         return self.rows[key]

-timeout = options.get("timeout")
+timeout = options.get("timeout") or 5
"""),
    ("src/mail.js", """
-async function sendMail(to) {
-  await post(to)
+function sendMail(to) {
+  post(to)
 }
"""),
    ("src/mail.js", """
-function sendMail(to) {
+async function sendMail(to) {
   return post(to)
 }
 async function welcome(user) {
-  sendMail(user.mail)
+  await sendMail(user.mail)
 }
"""),
    # Fragments that are no whole statements
    ("app/a.py", """
     * **http2** - whether HTTP/2 is used
-    * **proxies** - a mapping of proxies
     * **timeout** - in seconds
"""),
    ("app/a.py", """
 def parse(args):
-    if not args:
+    if not args or (
+        len(args) == 1
+    ):
         # what follows is out of sight
"""),
    ("config.yml", """
-name: shop
+name: store
 kind: web
"""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "weight", "change"),
    [
        pytest.param(rule, weight, change, id=f"{rule}-{at}")
        for rule, weight, changes in BAD
        for at, change in enumerate(changes)
    ],
)
def test_what_is_taken_away_is_found(rule: str, weight: str, change: Change) -> None:
    found = found_in(change)
    assert (rule, weight) in {(finding.rule, finding.weight) for finding in found}, found


@pytest.mark.parametrize("change", GOOD, ids=range(len(GOOD)))
def test_what_only_looks_so_is_let_pass(change: Change) -> None:
    assert [str(finding) for finding in found_in(change) if finding.weight != "note"] == []


def test_a_check_that_goes_from_a_cell_of_a_notebook_is_found() -> None:
    def notebook(*lines: str) -> str:
        return json.dumps(
            {"cells": [{"cell_type": "code", "source": [line + "\n" for line in lines]}]}, indent=1
        )

    guard = ("    if not user.is_admin:", "        raise PermissionError")
    old = notebook("def delete(user, x):", *guard, "    x.delete()").split("\n")
    new = notebook("def delete(user, x):", "    x.delete()").split("\n")
    lines = list(difflib.unified_diff(old, new, "a/a.ipynb", "b/a.ipynb", lineterm="", n=100))
    changes = read_changes("\n".join(lines) + "\n").files
    found, unread = findings(changes, pieces_of(changes))
    assert unread == []
    assert [(each.rule, each.weight) for each in found] == [("removed-guard", "stop")]


def test_each_rule_has_five_examples() -> None:
    assert {rule: len(changes) for rule, _, changes in BAD if len(changes) < 5} == {}
