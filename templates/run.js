const wire = (figure) => {
  const svg = figure.querySelector("svg"), readout = figure.querySelector(".readout"), cursor = svg.querySelector(".cursor");
  const data = JSON.parse(figure.querySelector("script").textContent), at = svg.dataset;
  const places = [...new Set(data.series.flatMap((s) => s.points.map((p) => p[0])))].sort((a, b) => a - b);
  let now = -1;
  const nearest = (points, x) => points.reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a);
  const value = (s, x) => {
    const [at_x, y] = nearest(s.points, x);
    return s.dots && Math.abs(at_x - x) > (at.high - at.low) / 100 ? null : y;
  };
  const round = (v) => v === null ? "–" : Number(v.toPrecision(4));
  const show = (place) => {
    now = Math.min(places.length - 1, Math.max(0, place));
    const x = places[now], px = +at.left + (x - at.low) / (at.high - at.low) * (at.right - at.left);
    cursor.setAttribute("x1", px); cursor.setAttribute("x2", px);
    cursor.setAttribute("y1", at.top); cursor.setAttribute("y2", at.bottom); cursor.style.visibility = "visible";
    readout.textContent = data.x + " " + round(x) + ":  " + data.series.map((s) => s.name + " " + round(value(s, x))).join("  ·  ");
  };
  const hide = () => { now = -1; readout.textContent = ""; cursor.style.visibility = "hidden"; };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), there = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    const part = Math.min(1, Math.max(0, (there - at.left) / (at.right - at.left)));
    const x = +at.low + part * (at.high - at.low);
    show(places.reduce((a, b, i) => Math.abs(b - x) < Math.abs(places[a] - x) ? i : a, 0));
  });
  svg.addEventListener("keydown", (event) => {
    const moves = {ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: places.length - 1};
    if (event.key in moves) { event.preventDefault(); show(moves[event.key]); }
    if (event.key === "Escape") hide();
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
};
document.querySelectorAll("figure[data-chart]").forEach(wire);
