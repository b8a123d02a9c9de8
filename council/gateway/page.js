// Asks for the council's figures once a second and draws them; between two answers the seats' silence goes on.
"use strict";

const EVERY_MS = 1000;
const DRAW_MS = 200;
const WAIT_MS = 8000;
const token = new URLSearchParams(location.search).get("token");
const at = (id) => document.getElementById(id);

let seen = null; // the newest figures
let seenAt = 0; // when they came, on this page's own clock
let silentSince = performance.now();
let refusedToken = false;

function element(kind, className, text) {
  const made = document.createElement(kind);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text; // as text, whatever it holds
  return made;
}

function span(seconds) {
  const s = Math.max(0, seconds);
  if (s < 1) return `${Math.ceil(s * 1000)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.floor(s)} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} days`;
}

const count = (number) => number.toLocaleString("en");
const dollars = (micro) => `$${(micro / 1e6).toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 4 })}`;
const plural = (number, what) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;

async function ask() {
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(), WAIT_MS);
  try {
    const headers = token && !refusedToken ? { Authorization: `Bearer ${token}` } : {};
    const answer = await fetch("/api/council", { headers, signal: stop.signal });
    if (answer.status === 403) {
      refusedToken = true;
      return;
    }
    if (!answer.ok) throw new Error(`the panel answers with status ${answer.status}`);
    seen = await answer.json();
    seenAt = silentSince = performance.now();
    draw();
  } catch (error) {
    const away = span((performance.now() - silentSince) / 1000);
    trouble(`the panel has not answered for ${away}: it restarts, or the council has ended`);
  } finally {
    clearTimeout(timer);
  }
}

function trouble(why) {
  at("trouble").textContent = why ?? "";
  at("trouble").hidden = !why;
  at("all").classList.toggle("stale", Boolean(why));
  at("pulse").dataset.state = why ? "trouble" : "live";
  at("pulse-text").textContent = why ? "not live" : "live";
}

function draw() {
  trouble(seen.trouble);
  at("name").textContent = seen.name;
  document.title = `${seen.name} · council`;
  if (seen.at === null) return; // nothing was ever told
  const facts = [`epoch ${seen.epoch}`, `up ${span(seen.uptime_s)}`, `journal at ${count(seen.position)}`];
  if (seen.journal_lag) facts.push(`${plural(seen.journal_lag, "record")} not on disk yet`);
  if (!seen.durable) facts.push("no journal on disk");
  facts.push(`quorum ${seen.quorum}`);
  at("facts").textContent = facts.join("  ·  ");
  drawSeats();
  drawCounts();
  drawOpen();
  drawEscalations();
  drawDecisions();
  drawBudget();
  at("foot").textContent = seen.content
    ? `Council ${seen.council_id}. Texts of proposals are shown: the address holds a token, so share it with care.`
    : `Council ${seen.council_id}. Texts of proposals are not shown${refusedToken ? ", for the token in this address is not this panel's" : ""}: council dashboard --token gives the address that shows them.`;
}

function drawSeats() {
  const known = new Map([...at("seats").children].map((card) => [card.dataset.seat, card]));
  at("seats").replaceChildren(...seen.seats.map((seat) => known.get(seat.name) ?? newSeat(seat)));
  for (const seat of seen.seats) {
    const card = [...at("seats").children].find((each) => each.dataset.seat === seat.name);
    const state = seat.active ? (seat.busy ? "busy" : "active") : "inactive";
    card.dataset.state = seat.active ? "active" : "inactive";
    const pill = card.querySelector(".pill");
    pill.dataset.state = state;
    pill.textContent = state === "busy" ? `active, busy with ${seat.busy}` : state;
    card.querySelector(".why").textContent = seat.active ? "" : seat.why;
    card.querySelector(".why").hidden = seat.active;
    const spent = seen.budget.seats[seat.name]?.tokens.spent ?? 0;
    const rest = [plural(seat.heartbeats, "heartbeat"), plural(seat.restarts, "restart")];
    if (spent) rest.push(`${count(spent)} tokens`);
    card.querySelector(".rest").textContent = rest.join("  ·  ");
  }
  drawBeats();
}

function newSeat(seat) {
  const card = element("article", "seat");
  card.dataset.seat = seat.name;
  const top = element("div", "top");
  top.append(element("span", "who", seat.name));
  if (seat.prime) top.append(element("span", "tag", "breaks ties"));
  top.append(element("span", "pill"));
  const beat = element("div", "beat");
  beat.append(element("span", "dim", "last heartbeat"), element("span", "age"));
  const bar = element("div", "bar");
  bar.setAttribute("role", "meter");
  bar.setAttribute("aria-label", `time since the last heartbeat of ${seat.name}`);
  bar.append(element("i"));
  card.append(top, beat, bar, element("p", "why"), element("p", "rest"));
  return card;
}

function drawBeats() {
  if (!seen || seen.at === null) return;
  const since = seen.now - seen.at + (performance.now() - seenAt) / 1000;
  const limit = seen.inactivity_limit_s;
  for (const seat of seen.seats) {
    const card = [...at("seats").children].find((each) => each.dataset.seat === seat.name);
    if (!card) continue;
    const age = seat.heartbeat_age_s + since;
    const bar = card.querySelector(".bar");
    card.querySelector(".age").textContent = `${span(age)} of ${span(limit)}`;
    bar.dataset.level = age > limit || !seat.active ? "silent" : age > 0.5 * limit ? "late" : "good";
    bar.setAttribute("aria-valuemax", limit);
    bar.setAttribute("aria-valuenow", Math.min(age, limit).toFixed(1));
    bar.firstChild.style.width = `${Math.min(100, (100 * age) / limit)}%`;
  }
}

function drawCounts() {
  const cells = [
    ["open", seen.open.count],
    ["with a human", seen.open.with_human],
    ["approved", seen.decided.approved ?? 0],
    ["rejected", seen.decided.rejected ?? 0],
    ["deferred", seen.decided.deferred ?? 0],
    ["cancelled", seen.decided.cancelled ?? 0],
    ["refused messages", seen.refused],
  ];
  at("counts").replaceChildren(
    ...cells.map(([what, number]) => {
      const cell = element("div");
      cell.append(element("dt", "", what), element("dd", "", count(number)));
      return cell;
    }),
  );
}

// A table of rows: their cells, each a text or [text, class], and below them what a row is about, if that is shown.
function list(place, columns, rows, none, all) {
  const box = element("div", "list");
  if (!rows.length) {
    box.append(element("p", "", none));
  } else {
    const table = element("table");
    const head = element("tr");
    head.append(...columns.map(([title, className]) => element("th", className, title)));
    table.append(head, ...rows.flatMap(([cells, about]) => lines(columns, cells, about)));
    box.append(table);
    if (all > rows.length) box.append(element("p", "", `and ${count(all - rows.length)} more`));
  }
  at(place).replaceChildren(box);
}

function lines(columns, cells, about) {
  const line = element("tr");
  line.append(
    ...cells.map((cell, index) => {
      const [text, className] = Array.isArray(cell) ? cell : [cell, ""];
      return element("td", `${columns[index][1] ?? ""} ${className}`.trim(), text);
    }),
  );
  if (!about) return [line];
  line.className = "led";
  const [what, ...more] = about;
  const below = element("tr");
  const cell = element("td", "wide");
  cell.colSpan = columns.length;
  cell.append(element("div", "", what), element("div", "dim", more.join("  ·  ")));
  below.append(cell);
  return [line, below];
}

function drawOpen() {
  const columns = [["proposal", "id"], ["stage"], ["age", "number"], ["left", "number"], ["ballots", "number"]];
  const rows = seen.open.rows
    .filter((each) => each.stage !== "human")
    .map((each) => {
      const left = each.time_left_s === null ? "" : span(each.time_left_s);
      const cells = [each.proposal_id, each.stage, span(each.age_s), left, String(each.ballots)];
      if (!seen.content) return [cells];
      const voted = Object.entries(each.voted).map(([seat, vote]) => `${seat}: ${vote}`);
      return [cells, [each.summary, `by ${each.proposer}`, `${each.risk_level} risk`, ...each.escalated_for, ...voted]];
    });
  list("open", columns, rows, "Nothing is open.", seen.open.count);
}

function drawEscalations() {
  const columns = [["proposal", "id"], ["waiting", "number"], ["expires in", "number"]];
  const rows = seen.escalations.map((each) => {
    const waiting = [span(seen.now - each.asked_wall_s), "human"];
    const cells = [each.proposal_id, waiting, span(each.expires_wall_s - seen.now)];
    return seen.content ? [cells, [each.summary, `${each.risk_level} risk`, each.detail, each.next_step]] : [cells];
  });
  list("escalations", columns, rows, "Nobody is waited for.", seen.open.with_human);
}

function drawDecisions() {
  const columns = [["proposal", "id"], ["decision"], ["by"], ["took", "number"], ["ago", "number"]];
  const rows = seen.decisions.map((each) => {
    const by = each.decided_by.replace("_", " ") + (each.degraded ? ", degraded" : "");
    const cells = [each.proposal_id, [each.outcome, each.outcome], by, span(each.seconds), span(seen.now - each.at)];
    return seen.content ? [cells, [each.summary, each.reason]] : [cells];
  });
  list("decisions", columns, rows, "Nothing has been decided yet.", 0);
}

function drawBudget() {
  const columns = [["whose"], ["calls", "number"], ["tokens", "number"], ["held", "number"], ["left", "number"], ["cost", "number"]];
  const accounts = [["council", seen.budget.council], ...Object.entries(seen.budget.seats)];
  const used = accounts.filter(([, each]) => each.calls || each.tokens.held || each.tokens.cap !== null || each.microusd.cap !== null);
  const cells = used.map(([name, each]) => {
    const left = [];
    if (each.tokens.left !== null) left.push(count(each.tokens.left));
    if (each.microusd.left !== null) left.push(dollars(each.microusd.left));
    const tokens = [count(each.tokens.spent), count(each.tokens.held)];
    return [[name, count(each.calls), ...tokens, left.join(" / ") || "no cap", dollars(each.microusd.spent)]];
  });
  list("budget", columns, cells, "No model has been called, and nothing is capped.", 0);
}

async function follow() {
  for (;;) {
    await ask();
    await new Promise((done) => setTimeout(done, EVERY_MS));
  }
}

setInterval(drawBeats, DRAW_MS);
follow();
