"use strict";
// Each part comes whole and drawn; what somebody points at or has opened stays as it is until they leave it.
const link = document.getElementById("link"), held = new Map();
const busy = (part) => part.matches(":focus-within") || part.querySelector("svg:hover");
const put = (part, html) => {
  const open = [...part.querySelectorAll("details")].map((details) => details.open);
  part.innerHTML = html;
  part.querySelectorAll("details").forEach((details, i) => { details.open = Boolean(open[i]); });
  part.querySelectorAll("figure[data-chart]").forEach(wire);
};
const take = (name, html) => {
  const part = document.getElementById("part-" + name);
  if (!part) return;
  if (name !== "live" && busy(part)) held.set(name, html);
  else { held.delete(name); put(part, html); }
};
setInterval(() => { for (const [name, html] of held) take(name, html); }, 1000);
const heard = ({ kind, facts }) => {
  link.textContent = kind === "lost" ? "The page has lost its server; the run continues. It tries again by itself." : "";
  if (kind === "part") take(facts.name, facts.html);
  if (kind === "title") document.title = facts;
};
// A browser opens six connections to one place: of all tabs one listens, and tells the others.
const others = new BroadcastChannel("motley");
others.onmessage = (event) => heard(event.data);
const listen = () => new Promise(() => connect());
const connect = () => {
  const source = new EventSource("events"), tell = (said) => { heard(said); others.postMessage(said); };
  for (const kind of ["part", "title"]) source.addEventListener(kind, (event) => tell({ kind, facts: JSON.parse(event.data) }));
  source.onopen = () => tell({ kind: "found" });
  source.onerror = () => {
    tell({ kind: "lost" });
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 3000);  // refused, after which a browser gives up
  };
};
if (navigator.locks) navigator.locks.request("motley-stream", listen); else listen();
