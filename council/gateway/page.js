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
let toldIds = null; // the escalations that were there before
let copied = null; // the newest attempt to copy a command: its id, what became of it, until when that is shown

// A character that would be invisible, or would reorder the text around it, is shown as its number. The second part
// are letters and marks that are drawn as nothing or as a blank, as in council/kinds/text.py.
const HIDDEN =
  /[^\P{C}\n\t]|[\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0d\uffa0\u{e0100}-\u{e01ef}]/gu;
const visible = (text) => String(text).replace(HIDDEN, (char) => `\\u${char.codePointAt(0).toString(16).padStart(4, "0")}`);

function element(kind, className, text) {
  const made = document.createElement(kind);
  made.className = className || "";
  if (text !== undefined) made.textContent = visible(text); // as text, whatever it holds
  return made;
}

function holder(kind, className, ...children) {
  const made = element(kind, className);
  made.append(...children.filter((each) => each !== null));
  return made;
}

// Makes the children of `place` like `wanted`, and keeps those that are there, with their focus, selection and state.
// A child with a key stays the same as long as its key does.
function show(place, ...wanted) {
  const keys = new Set(wanted.map((each) => each.dataset?.key));
  for (const old of [...place.childNodes]) {
    if (old.dataset?.key && !keys.has(old.dataset.key)) old.remove();
  }
  let old = place.firstChild;
  for (const made of wanted) {
    const isSame = old && old.nodeName === made.nodeName && old.dataset?.key === made.dataset?.key;
    if (!isSame) {
      place.insertBefore(made, old);
    } else {
      if (made.nodeType === Node.TEXT_NODE && old.data !== made.data) old.data = made.data;
      for (const { name, value } of made.attributes ?? []) {
        if (name === "open") continue; // it is the reader's to fold
        if (old.getAttribute(name) !== value) old.setAttribute(name, value);
      }
      show(old, ...made.childNodes);
      old = old.nextSibling;
    }
  }
  while (old) {
    const next = old.nextSibling;
    old.remove();
    old = next;
  }
}

// A word with an explanation that is shown when the pointer or the keyboard comes to it.
function explained(id, kind, className, text, explanation) {
  const tip = element("span", "tip", explanation);
  tip.id = `tip-${id}`;
  tip.setAttribute("role", "tooltip");
  const made = holder(kind, `${className} explained`.trim(), new Text(text), tip);
  made.tabIndex = 0;
  made.setAttribute("aria-describedby", tip.id);
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

function say(id, text) {
  if (at(id).textContent !== text) at(id).textContent = text;
}

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
  say("trouble", why ?? "");
  at("trouble").hidden = !why;
  at("all").classList.toggle("stale", Boolean(why));
  at("pulse").dataset.state = why ? "trouble" : "live";
  say("pulse-text", why ? "not live" : "live");
}

function draw() {
  trouble(seen.trouble);
  const waiting = seen.at === null ? 0 : seen.open.with_human;
  say("name", visible(seen.name));
  document.title = `${waiting ? `(${count(waiting)}) ` : ""}${seen.name === "council" ? "" : `${seen.name} · `}council`;
  at("token").hidden = !refusedToken;
  if (refusedToken) {
    const why = "The token in this address is not this panel's, so texts of proposals are not shown.";
    say("token", `${why} It may be of an earlier start of the council. council dashboard --token prints the right address.`);
  }
  if (seen.at === null) return; // nothing was ever told
  drawFacts();
  drawEscalations();
  drawCounts();
  drawSeats();
  drawOpen();
  drawDecisions();
  drawBudget();
  const texts = seen.content
    ? "Texts of proposals are shown: the address holds a token, so share it with care."
    : "Texts of proposals are not shown: council dashboard --token prints the address that shows them.";
  say("foot", `Council ${seen.council_id}. ${texts}`);
}

function drawFacts() {
  const epoch = "How often a coordinator has begun to write this journal: 1 at first, and one more after each restart.";
  const journal = "The number of the newest record in the journal. Everything that is decided is recorded there first.";
  const quorum = "So many seats must vote before the council can decide.";
  const facts = [
    element("span", "", `up ${span(seen.uptime_s)}`),
    explained("quorum", "span", "", `quorum ${seen.quorum}`, quorum),
    explained("epoch", "span", "", `epoch ${seen.epoch}`, epoch),
    explained("journal", "span", "", `journal at ${count(seen.position)}`, journal),
  ];
  if (seen.journal_lag) facts.push(element("span", "warn", `${plural(seen.journal_lag, "record")} not on disk yet`));
  if (!seen.durable) facts.push(element("span", "", "no journal on disk"));
  show(at("facts"), ...facts);
}

function drawSeats() {
  show(at("seats"), ...seen.seats.map(seatCard));
  drawBeats();
}

function seatCard(seat) {
  const state = seat.active ? (seat.busy ? "busy" : "active") : "inactive";
  const card = element("article", "seat");
  card.dataset.key = card.dataset.seat = seat.name;
  card.dataset.state = seat.active ? "active" : "inactive";
  const top = holder("div", "top", element("span", "who", seat.name));
  if (seat.name === "prime" && seat.prime) top.title = "Prime breaks ties.";
  else if (seat.prime) top.append(element("span", "tag", "breaks ties"));
  const pill = element("span", "pill", state === "busy" ? `busy with ${seat.busy}` : state);
  pill.dataset.state = state;
  top.append(pill);
  const limit = `Each seat sends a heartbeat every few seconds. After ${span(seen.inactivity_limit_s)} without one it counts as inactive.`;
  const label = explained(`beat-${seat.name}`, "span", "dim", "last heartbeat", limit);
  const beat = holder("div", "beat", label, element("span", "age"));
  const bar = holder("div", "bar", element("i"));
  bar.setAttribute("role", "meter");
  bar.setAttribute("aria-label", `time since the last heartbeat of ${seat.name}`);
  const spent = seen.budget.seats[seat.name]?.tokens.spent ?? 0;
  const rest = [plural(seat.heartbeats, "heartbeat"), plural(seat.restarts, "restart")];
  if (spent) rest.push(`${count(spent)} tokens`);
  card.append(top, beat, bar);
  if (!seat.active) card.append(element("p", "why", seat.why));
  card.append(element("p", "rest", rest.join("  ·  ")));
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
    const told = `${span(age)} of ${span(limit)}`;
    const place = card.querySelector(".age");
    if (place.textContent !== told) place.textContent = told;
    bar.dataset.level = age > limit || !seat.active ? "silent" : age > 0.5 * limit ? "late" : "good";
    bar.setAttribute("aria-valuemax", limit);
    bar.setAttribute("aria-valuenow", Math.min(age, limit).toFixed(1));
    bar.firstChild.style.width = `${Math.min(100, (100 * age) / limit)}%`;
  }
}

function drawCounts() {
  const refused = "Messages that the council did not accept: of unknown senders, with a wrong signature, malformed, or sent twice with different content.";
  const cells = [
    ["with a human", seen.open.with_human],
    ["open", seen.open.count],
    ["approved", seen.decided.approved ?? 0],
    ["rejected", seen.decided.rejected ?? 0],
    ["deferred", seen.decided.deferred ?? 0, "No human answered in time."],
    ["cancelled", seen.decided.cancelled ?? 0],
    ["refused messages", seen.refused, refused],
  ];
  const tiles = cells.map(([what, number, why]) => {
    const name = why ? explained(what.replace(" ", "-"), "dt", "", what, why) : element("dt", "", what);
    const urgent = what === "with a human" && number ? "urgent" : "";
    return holder("div", urgent, name, element("dd", "", count(number)));
  });
  show(at("counts"), ...tiles);
}

// A table of rows: their key, their cells, each a text or [text, class], and below them what a row is about, if that
// is shown.
function list(place, columns, rows, none, all) {
  const box = element("div", "list");
  if (!rows.length) {
    box.append(element("p", "", none));
  } else {
    const head = holder("tr", "", ...columns.map(([title, className]) => element("th", className, title)));
    const bodies = rows.map(([key, cells, about]) => {
      const body = holder("tbody", "", ...lines(columns, cells, about));
      body.dataset.key = key;
      body.tabIndex = 0;
      return body;
    });
    box.append(holder("table", "", holder("thead", "", head), ...bodies));
    if (all > rows.length) box.append(element("p", "", `${count(all - rows.length)} more`));
  }
  show(at(place), box);
}

function lines(columns, cells, about) {
  const shown = cells.map((cell, index) => {
    const [text, className] = Array.isArray(cell) ? cell : [cell, ""];
    return element("td", `${columns[index][1] ?? ""} ${className}`.trim(), text);
  });
  if (!about) return [holder("tr", "", ...shown)];
  const [what, ...more] = about;
  const cell = holder("td", "wide", element("div", "", what), element("div", "dim", more.join("  ·  ")));
  cell.colSpan = columns.length;
  return [holder("tr", "led", ...shown), holder("tr", "", cell)];
}

function drawOpen() {
  const columns = [["proposal", "id"], ["stage"], ["age", "number"], ["left", "number"], ["ballots", "number"]];
  const rows = seen.open.rows
    .filter((each) => each.stage !== "human")
    .map((each) => {
      const left = each.time_left_s === null ? "" : span(each.time_left_s);
      const cells = [each.proposal_id, each.stage, span(each.age_s), left, String(each.ballots)];
      if (!seen.content) return [each.proposal_id, cells];
      const voted = Object.entries(each.voted).map(([seat, vote]) => `${seat}: ${vote}`);
      return [each.proposal_id, cells, [each.summary, `by ${each.proposer}`, `${each.risk_level} risk`, ...each.escalated_for, ...voted]];
    });
  list("open", columns, rows, "Nothing is open.", seen.open.count);
}

// What waits for a human

const SOON_S = 3600; // what expires sooner is marked
const UNFOLDED = 3; // so many new cases are shown whole at first, the others on a line each

function drawEscalations() {
  const newestFirst = [...seen.escalations].sort((one, other) => other.asked_wall_s - one.asked_wall_s);
  const all = seen.open.with_human;
  const badge = element("span", "badge", count(all));
  show(at("escalations-title"), new Text("Waiting for a human"), ...(all ? [badge] : []));
  at("waiting").classList.toggle("urgent", all > 0);
  const cards = newestFirst.map(escalationCard);
  if (!all) cards.push(element("p", "none", "Nothing waits for a human."));
  if (all > cards.length) {
    const older = `${count(all - cards.length)} older: council escalations --all${nameOption()}`;
    cards.push(element("p", "none", older));
  }
  show(at("escalations"), ...cards);
  tell(newestFirst);
}

// Says to a screen reader what has come since the last time, once.
function tell(escalations) {
  const fresh = toldIds ? escalations.filter((each) => !toldIds.has(each.escalation_id)) : [];
  toldIds = new Set(escalations.map((each) => each.escalation_id));
  if (!fresh.length) return;
  const what = fresh.map((each) => visible(each.summary ?? each.proposal_id)).join("; ");
  at("told").textContent = `${plural(fresh.length, "new case")} for a human: ${what}`;
}

function escalationCard(each, index) {
  const card = element("details", "case");
  card.dataset.key = each.escalation_id;
  card.open = index < UNFOLDED;
  const left = each.expires_wall_s - seen.now;
  const risk = each.risk ?? each.risk_level;
  const pill = risk ? element("span", "pill", `${risk} risk`) : null;
  if (pill) pill.dataset.state = `risk-${risk}`;
  const title = each.action ? element("h3", "tool", each.action.tool) : element("h3", "", each.summary ?? each.escalation_id);
  const times = element("span", "dim", `asked ${span(seen.now - each.asked_wall_s)} ago`);
  const ends = element("span", left < SOON_S ? "bad" : "dim", `${span(left)} left`);
  const says = each.action ? element("span", "says", each.summary) : null; // of a folded case
  card.append(holder("summary", "", pill, title, says, holder("span", "times", times, ends)));
  if (seen.content) card.append(...subject(each));
  card.append(commandLine(each));
  if (seen.content) card.append(...opinions(each));
  return card;
}

// What is to be approved, and who asks.
function subject(each) {
  const parts = each.action ? [...argumentLines(each), element("p", "", each.summary)] : [];
  const about = [each.requester ? `asked by ${each.requester}` : "", each.detail].filter(Boolean);
  parts.push(element("p", "dim", about.join("  ·  ")));
  if (each.body?.trim()) parts.push(bodyOf(each.body));
  return parts;
}

function argumentLines(each) {
  const named = each.action.arguments.map(([name, value]) =>
    holder("div", "", element("span", "dim", `${name} = `), element("span", "", value)),
  );
  const cut = each.action.arguments_cut;
  const more = `… ${plural(cut, "argument")} cut or left out: council show ${each.proposal_id}${nameOption()}`;
  if (cut) named.push(element("div", "warn", more));
  return named.length ? [holder("div", "args", ...named)] : [];
}

const DIFF = /^(diff --git |--- |@@ )/m;

function bodyOf(body) {
  const isDiff = DIFF.test(body);
  const styles = { "+": "added", "-": "removed", "@": "hunk" };
  const style = (line) => (/^(\+\+\+|---|diff|index) /.test(line) ? "file" : (styles[line[0]] ?? ""));
  const shown = element("pre", "body");
  for (const line of body.trimEnd().split("\n")) {
    shown.append(element("span", isDiff ? style(line) : "", `${line}\n`));
  }
  shown.tabIndex = 0; // it may be scrolled
  shown.setAttribute("aria-label", isDiff ? "the change" : "the proposal's text");
  return shown;
}

function opinions(each) {
  const votes = each.ballots ?? Object.entries(each.votes ?? {}).map(([seat, vote]) => ({ seat, vote }));
  const said = votes.map((vote) => opinion(vote.seat, vote.vote, vote));
  if (each.ruling) said.push(opinion(`${each.ruling.seat}'s ruling`, each.ruling.ruling, each.ruling));
  const next = each.next_step ? element("p", "dim", each.next_step) : null;
  return [holder("dl", "votes", ...said.flat()), ...(next ? [next] : [])];
}

function opinion(who, what, said) {
  const sure = said.confidence === undefined ? "" : ` ${said.confidence.toFixed(2)}`;
  const risk = !said.risk_level || said.risk_level === "low" ? "" : `, ${said.risk_level} risk`;
  const vote = element("span", `vote-${what}`, `${what}${sure}${risk}`);
  return [element("dt", "", who), holder("dd", "", vote, element("span", "reason", said.reason ? ` ${said.reason}` : ""))];
}

// The option that names this council in a command.
function nameOption() {
  return seen.name === "council" ? "" : ` --name ${seen.name}`;
}

// The command that answers a case, with a button that copies it.
function commandLine(each) {
  const command = element("code", "", (each.command ?? `council answer ${each.escalation_id}`) + nameOption());
  const isFresh = copied?.id === each.escalation_id && performance.now() < copied.until;
  const button = element("button", "copy", isFresh ? copied.said : "Copy");
  button.type = "button";
  button.setAttribute("aria-label", `Copy the command that answers case ${each.escalation_id}`);
  return holder("div", "command", command, button);
}

async function copy(button) {
  const code = button.previousSibling;
  let said = "Copied";
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch {
    // Not allowed in a frame, or without https: the browser's older way, or the user's own.
    getSelection().selectAllChildren(code);
    if (!document.execCommand("copy")) said = "Selected: press Ctrl+C";
  }
  copied = { id: button.closest("[data-key]").dataset.key, said, until: performance.now() + 3000 };
  button.textContent = said;
  at("told").textContent = said;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("button.copy");
  if (button) copy(button);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") document.activeElement?.blur(); // takes an explanation away
});

function drawDecisions() {
  const columns = [["proposal", "id"], ["decision"], ["by"], ["took", "number"], ["ago", "number"]];
  const rows = seen.decisions.map((each) => {
    const by = each.decided_by.replace("_", " ") + (each.degraded ? ", degraded" : "");
    const cells = [each.proposal_id, [each.outcome, each.outcome], by, span(each.seconds), span(seen.now - each.at)];
    return [each.proposal_id, cells, seen.content ? [each.summary, each.reason] : null];
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
    return [name, [name, count(each.calls), ...tokens, left.join(" / ") || "no cap", dollars(each.microusd.spent)]];
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
