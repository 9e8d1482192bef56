"use strict";
// The token of this session, as in the address that `pod-safety ui` printed: each request carries it.
const TOKEN = new URLSearchParams(location.search).get("token") || "";
const asking = (path, more = {}) => `${path}?${new URLSearchParams({ ...more, token: TOKEN })}`;
// All text goes in as text: names and messages come from the cluster, and nobody there may write our page.
const make = (tag, kind, ...inside) => {
  const one = document.createElement(tag);
  if (kind) one.className = kind;
  one.append(...inside.filter(part => part !== null && part !== undefined && part !== ""));
  return one;
};
const at = id => document.getElementById(id);
const words = camel => camel.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase().replace(/^./, letter => letter.toUpperCase());
const plural = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;
const MARK = { Good: "✔", Wait: "!", Bad: "✖" };
// As the commands print them: `2026-11-21T10:23:05Z` is `11-21 10:23:05`.
const utc = at => new Date(at).toISOString().slice(5, 19).replace("T", " ");
const mark = tone => { const one = make("span", `mark ${tone}`, MARK[tone]); one.setAttribute("aria-label", { Good: "fine", Wait: "waits", Bad: "needs a person" }[tone]); return one; };
const TONE = { Free: "Good", Released: "Good", Waiting: "Wait", Unknown: "Wait", Blocked: "Bad" };

function row(tone, name, message, since, open) {
  const button = make("button", "", mark(tone), make("span", "body", make("b", "", name), document.createElement("br"), make("span", "dim", message)), make("span", "since", since));
  if (open) button.addEventListener("click", open); else button.disabled = true;
  return button;
}

// `kind/NAMESPACE/NAME` or `kind/NAME`.
function explainable(object) {
  const parts = object.split("/");
  const [kind, namespace, name] = parts.length === 3 ? parts : [parts[0], null, parts[1]];
  const known = ["pod", "node", "statefulset", "namespace", "persistentvolumeclaim", "persistentvolume"].includes(kind) && name;
  return known ? () => { location.hash = object; } : null;
}

function section(title, ...inside) { return inside.length ? [make("h2", "", title), ...inside] : []; }

function zones(all) {
  const cards = all.map(zone => {
    const meter = make("meter");
    [meter.min, meter.max, meter.optimum, meter.low, meter.high] = [0, zone.nodes, zone.nodes, zone.nodes / 2, zone.nodes - .5];
    meter.value = zone.ready;
    meter.setAttribute("aria-label", `${zone.ready} of ${zone.nodes} nodes Ready`);
    const lost = zone.lost ? make("span", "Bad", `${zone.lost} lost`) : make("span", "dim", "none lost");
    const disrupted = zone.brake ? make("span", "Wait", `disrupted: ${words(zone.brake).toLowerCase()}`) : make("span", "dim", "not disrupted");
    return make("div", "card zone", make("div", "", make("b", "", zone.zone), make("span", "", `${zone.ready}/${zone.nodes}`)), meter, make("div", "", lost, disrupted));
  });
  return cards.length ? [make("div", "zones", ...cards)] : [];
}

function paused(one) {
  const who = one.by ? `, by ${one.by} since ${one.since}` : "";
  return withCommand(row("Wait", one.object, one.reason + who, "", explainable(one.object)), one.command);
}

function show(seen) {
  const leader = seen.leader ? `leader ${seen.leader}, ${plural(seen.standbys, "standby")}` : seen.leaderUnknown ? "leader unknown" : "no leader";
  const cluster = [seen.cluster.context, seen.cluster.server, seen.cluster.user && `as ${seen.cluster.user}`].filter(Boolean).join(", ");
  at("who").textContent = [cluster, seen.serverVersion && `Kubernetes ${seen.serverVersion}`, seen.mode && `mode ${seen.mode}`, leader].filter(Boolean).join(" · ");
  at("asof").textContent = `Last change at ${utc(Date.now())} UTC.`;
  const title = `${seen.cluster.context || seen.cluster.server} · pod-safety`;
  document.title = seen.blocked.length ? `(${seen.blocked.length}) ${title}` : title;
  const checked = seen.identities !== null && seen.waitForProof !== null;
  const tone = !checked || seen.waitForProof ? "Wait" : "Good";
  const counted = !checked ? "Not checked, because pods, nodes or Leases could not be read"
    : `${seen.identities}, ` + (seen.waitForProof ? `${seen.waitForProof} waiting for proof that the old pod stopped` : "none waits for proof");
  const promise = make("div", "card promise", mark(tone), make("div", "",
    make("b", "", "Pods with a stable name"), make("span", "dim", counted)));
  const troubles = blocks => seen.troubles.filter(one => one.blocks === blocks).map(one => withCommand(row(one.blocks ? "Bad" : "Wait", one.object, one.message, "", explainable(one.object)), explainable(one.object) ? "" : one.command));
  const blocked = seen.blocked.map(one => row("Bad", `${one.namespace}/${one.pod}`, `${one.node === null ? "on no node" : `on ${one.node}`} · needs ${one.needs}`, one.age, explainable(`pod/${one.namespace}/${one.pod}`)));
  const unlisted = seen.waitForFencing ? [make("p", "dim", `Not listed: ${plural(seen.waitForFencing, "pod")} to be released by fencing, without a person. Open the node to see which.`)] : [];
  const [calmTone, calmWords] = seen.verdict === "Clear" ? ["Good", "Nothing needs a person"] : ["Wait", "It is not known whether something needs a person, because not everything could be read"];
  const [urgent, known] = [troubles(true), troubles(false)];
  const calm = urgent.length + blocked.length || known.length && seen.verdict === "Clear" ? [] : [make("div", "card promise", mark(calmTone), make("div", "", make("b", "", calmWords), make("span", "dim", "This page refreshes every three seconds.")))];
  at("overview").replaceChildren(promise,
    ...section("Zones", ...zones(seen.zones)),
    ...section("Needs a person", ...(urgent.length ? [make("div", "card list", ...urgent)] : calm)),
    ...section("To know", ...(known.length ? [make("div", "card list", ...known)] : [])),
    ...section("Blocked pods", ...(blocked.length ? [make("div", "card list", ...blocked)] : []), ...unlisted),
    ...section("Paused", ...((seen.paused || []).length ? [make("div", "card list", ...seen.paused.map(paused))] : [])),
    ...section("Not known", ...((seen.missing || []).length ? [make("ul", "dim", ...seen.missing.map(line => make("li", "", line)))] : [])));
}

function table(rows) { return make("table", "", make("tbody", "", ...rows.map(cells => make("tr", "", ...cells)))); }
const findings = all => table(all.map(one => {
  const cell = make("td", "mark", one.met === null ? "–" : mark(one.met ? "Good" : "Bad"));
  return [cell, make("td", "", words(one.type)), make("td", "dim", one.detail)];
}));

const moments = all => table(all.map(moment => [make("td", "time", utc(moment.at)), make("td", "", moment.what), make("td", "dim", moment.detail)]));

function withCommand(row, text) { return text ? make("div", "", row, command(text)) : row; }

function command(text) {
  const copy = make("button", "", "copy");
  copy.addEventListener("click", async () => { await navigator.clipboard.writeText(text); copy.textContent = "copied"; setTimeout(() => { copy.textContent = "copy"; }, 1500); });
  return make("div", "command", make("code", "", text), copy);
}

function answer(one) {
  const tone = TONE[one.verdict] || "Wait";
  const part = (title, list, made) => list && list.length ? [make("h2", "", title), made(list)] : [];
  return [
    make("h3", "", one.object), make("div", "dim", (one.facts || []).join(" · ")),
    make("div", `verdict ${tone}`, make("b", "", MARK[tone] + " " + words(one.verdict)), make("p", "", one.message)),
    ...part("What can be done", one.next, all => make("div", "", ...all.flatMap(next => [make("div", "", next.when), next.command ? command(next.command) : ""]))),
    ...(one.before ? part(`Before: ${one.object.startsWith("node/") ? "an earlier boot or Node of this name," : "the pod that was here"} until ${utc(one.before.until)} (UTC)`, one.before.history, moments) : []),
    ...part("How it got here (UTC)", one.history, moments),
    ...part("Signs of life", one.signals, findings),
    ...part("Proof that it stopped: one is enough", one.evidence, findings),
    ...part("Who may act", one.actors, all => table(all.map(actor => [make("td", "", actor.who), make("td", "dim", actor.may)]))),
    ...part("Contents", one.items, all => make("div", "card list", ...all.map(item => row(TONE[item.verdict] || "Wait", item.object, item.message, "", explainable(item.object))))),
    ...part("Also", one.notes, all => make("ul", "", ...all.map(line => make("li", "", line)))),
    ...part("Not known", one.missing, all => make("ul", "dim", ...all.map(line => make("li", "", line)))),
  ];
}

async function explain(kind, namespace, name) {
  const dialog = at("answer");
  const close = make("button", "close", "close");
  close.addEventListener("click", () => dialog.close());
  const fill = (...inside) => dialog.replaceChildren(close, ...inside);
  fill(make("h3", "", `${kind} ${name}`), make("p", "dim", "reading …"));
  if (!dialog.open) dialog.showModal();
  const path = asking(`/explain/${encodeURIComponent(kind)}/${encodeURIComponent(name)}`, namespace ? { namespace } : {});
  try {
    const response = await fetch(path);
    if (!response.ok) throw new Error(await response.text());
    fill(...answer(await response.json()));
  } catch (error) {
    fill(make("h3", "", `${kind} ${name}`), make("div", "verdict Bad", make("b", "", "No answer"), make("p", "", error.message)));
  }
}

// Which object is explained stands in the address: it can be sent to a colleague, and "back" closes it.
function follow() {
  const object = decodeURIComponent(location.hash.slice(1));
  const parts = object.split("/");
  if (!object) return at("answer").close();
  explain(parts[0], parts.length === 3 ? parts[1] : null, parts.at(-1));
}
addEventListener("hashchange", follow);
at("answer").addEventListener("close", () => { if (location.hash) history.pushState(null, "", location.pathname + location.search); });
at("answer").addEventListener("click", event => { if (event.target === at("answer")) at("answer").close(); });
const events = new EventSource(asking("/overview"));
const trouble = text => { at("trouble").textContent = text; at("trouble").hidden = !text; };
events.addEventListener("overview", event => { trouble(""); show(JSON.parse(event.data)); });
events.addEventListener("trouble", event => trouble(`${event.data}. What is shown below is outdated. Trying again.`));
if (location.hash) follow();
events.onerror = () => trouble("pod-safety ui no longer answers. What is shown below is outdated.");
