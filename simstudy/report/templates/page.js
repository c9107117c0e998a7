"use strict";
// Everything here is a convenience: without it the page holds the same numbers, in tables.
document.documentElement.classList.add("scripted");

const filled = (element, attributes, text) => {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
};
const make = (tag, attributes = {}, text = "") => filled(document.createElement(tag), attributes, text);
const shape = (tag, attributes = {}, text = "") =>
  filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, text);

// ---------------------------------------------------------------- search: rows of long tables, and claims
for (const box of document.querySelectorAll("[data-search]")) {
  const rows = [...box.querySelectorAll("tbody > tr, article")];
  if (rows.length < 8) continue;
  const label = make("label", { class: "search" }, `Search ${box.dataset.search}: `);
  const input = make("input", { type: "search", "aria-label": `Search ${box.dataset.search}` });
  label.append(input);
  box.prepend(label);
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
    // A study of which nothing is found is hidden as a whole.
    for (const part of box.querySelectorAll("section")) part.hidden = !part.querySelector("tbody > tr:not([hidden])");
  });
}

// ---------------------------------------------------------------- explorer: cells of a study, drawn as the reader asks
const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#888888"];
const WIDEST = 760, HEIGHT = 420, LEFT = 74, RIGHT = 16, TOP = 16, BOTTOM = 48;

const short = (value) => (value === null || value === undefined ? "–" : String(Number(value.toPrecision(5))));

function explore(data) {
  const controls = document.getElementById("controls"), told = document.getElementById("explored");
  const state = {};
  let width = WIDEST;
  const grid = () => data.grids.find((each) => each.name === state.grid);
  const inside = () => data.cells.slice(...grid().cells);
  const factor = (name) => grid().factors.findIndex((each) => each.name === name);
  const levels = (position) => [...new Set(inside().map((cell) => cell.levels[position]))];
  const numeric = (position) => levels(position).every((level) => level !== "" && !Number.isNaN(Number(level)));
  const measure = () => data.measures.findIndex((each) => each.name === state.y);
  const has = (each) => inside().some((cell) => cell.values[data.measures.indexOf(each)]);

  // What is not asked for, or does not exist in this grid, is filled in.
  function complete(asked) {
    const claim = Object.hasOwn(data.claims, asked.claim ?? "") ? data.claims[asked.claim] : null;
    const factors = (name) => data.grids.find((each) => each.name === name)?.factors.map((each) => each.name);
    state.claim = claim ? asked.claim : "";
    state.grid = claim?.grid ?? (factors(asked.grid) ? asked.grid : data.grids[0].name);
    const names = factors(state.grid), known = data.measures.filter(has).map((each) => each.name);
    state.y = [claim?.measure, asked.y, "mse"].find((name) => known.includes(name)) ?? known[0] ?? "";
    const first = names.findLast((_, position) => numeric(position)) ?? names.at(-1) ?? "";
    state.x = [asked.x, claim?.x].find((name) => names.includes(name)) ?? first;
    const other = names.filter((name) => name !== state.x);
    state.hue = asked.hue === "" || other.includes(asked.hue) ? asked.hue : (other.at(-1) ?? "");
    state.scale = ["log", "linear"].includes(asked.scale) ? asked.scale : "linear";
    state.only = {};
    for (const name of other.filter((each) => each !== state.hue)) {
      const found = levels(factor(name)), wanted = asked[`only.${name}`];
      state.only[name] = found.includes(wanted) ? wanted : claim || wanted === "" ? "" : found[0];
    }
    state.cell = asked.cell !== undefined && data.cells[asked.cell] ? Number(asked.cell) : null;
  }

  function choose(changes) {
    const asked = { ...state, ...Object.fromEntries(Object.entries(state.only).map(([k, v]) => [`only.${k}`, v])) };
    delete asked.only;
    complete({ ...asked, cell: undefined, ...changes });
    draw();
  }

  function select(title, options, value, change) {
    const label = make("label", {}, title), box = make("select", { "aria-label": title });
    for (const [key, text] of options) {
      const option = make("option", { value: key }, text);
      option.selected = key === value;
      box.append(option);
    }
    box.addEventListener("change", () => change(box.value));
    label.append(box);
    controls.append(label);
  }

  function drawControls() {
    controls.replaceChildren();
    const names = grid().factors.map((each) => [each.name, each.label]);
    select("claim", [["", "none"], ...Object.keys(data.claims).map((name) => [name, name])], state.claim,
           (claim) => choose({ claim, x: undefined, hue: undefined }));
    select("grid", data.grids.map((each) => [each.name, each.title || each.name]), state.grid,
           (name) => choose({ grid: name, claim: "", x: undefined, hue: undefined }));
    select("measure", data.measures.filter(has).map((each) => [each.name, each.label]), state.y,
           (y) => choose({ y, claim: "" }));
    if (names.length) select("along x", names, state.x, (x) => choose({ x }));
    const other = names.filter(([name]) => name !== state.x);
    if (other.length) select("colour", [["", "none"], ...other], state.hue, (hue) => choose({ hue }));
    for (const [name, label] of other.filter(([each]) => each !== state.hue)) {
      select(label, [["", "all"], ...levels(factor(name)).map((level) => [level, level])], state.only[name],
             (level) => choose({ [`only.${name}`]: level }));
    }
    select("scale of y", [["linear", "linear"], ["log", "logarithmic"]], state.scale, (scale) => choose({ scale }));
  }

  const shown = () => inside().filter((cell) => cell.values[measure()] &&
    Object.entries(state.only).every(([name, level]) => level === "" || cell.levels[factor(name)] === level));
  const theory = (values) => values[2] ?? values[3] ?? null;

  // Places of values from 0 to 1, and the values at which ticks stand.
  function scale(values, log) {
    const fit = log ? Math.log : (value) => value, known = values.filter((value) => !log || value > 0).map(fit);
    const low = Math.min(...known), high = Math.max(...known), room = 0.05 * (high - low) || 0.5 * Math.abs(low) || 0.5;
    const place = (value) => (fit(value) - low + room) / (high - low + 2 * room);
    const raw = (high - low + 2 * room) / 5, power = 10 ** Math.floor(Math.log10(raw));
    const step = power * [1, 2, 5, 10].find((each) => each * power >= raw);
    const ticks = [];
    for (let tick = Math.ceil((low - room) / step) * step; tick <= high + room; tick += step) ticks.push(tick);
    return { place, ticks: log ? ticks.map((tick) => Number(Math.exp(tick).toPrecision(2))) : ticks };
  }

  function axes(svg, x, y, places) {
    for (const tick of y.ticks) {
      const at = HEIGHT - BOTTOM - y.place(tick) * (HEIGHT - TOP - BOTTOM);
      svg.append(shape("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: at, y2: at }),
                 shape("text", { x: LEFT - 6, y: at + 4, "text-anchor": "end" }, short(tick)));
    }
    let free = -Infinity;
    for (const [at, text] of places) {
      const half = 3.5 * Math.min(text.length, 14);
      if (at - half < free) continue;
      free = at + half + 4;
      svg.append(shape("text", { x: at, y: HEIGHT - BOTTOM + 18, "text-anchor": "middle" },
                      text.length > 14 ? `${text.slice(0, 13)}…` : text));
    }
    svg.append(shape("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }),
               shape("text", { x: (LEFT + width - RIGHT) / 2, y: HEIGHT - 8, "text-anchor": "middle" },
                    grid().factors[factor(state.x)]?.label ?? ""));
  }

  function tell(cell) {
    if (!cell) {
      const claim = data.claims[state.claim];
      told.textContent = claim ? `${state.claim}: ${claim.statement}\nIt rests on ${claim.cells.length} cells.` : "";
      return;
    }
    const [estimate, mcse, exact, leading] = cell.values[measure()];
    const named = grid().factors.map((each, i) => `${each.label} = ${cell.levels[i]}`).join(", ");
    const claims = Object.keys(data.claims).filter((name) => data.claims[name].cells.includes(cell.number));
    told.textContent = [
      `cell ${cell.number}: ${named || "the only one of its grid"}`,
      `${data.measures[measure()].label}: ${short(estimate)} ± ${short(mcse)} (MCSE)`,
      `theory: exact ${short(exact)}, leading order ${short(leading)}`,
      `replicates: ${cell.replicates}, failed: ${cell.failed}; seed ${cell.seed}, data ${cell.data} (cells with the same see the same data)`,
      `claims that rest on it: ${claims.join(", ") || "none"}`,
      `replay: ${data.replay} --cell ${cell.number} --replicate 0`,
    ].join("\n");
  }

  function draw() {
    drawControls();
    const chart = document.getElementById("chart");
    // As wide as the window, so that its letters are as large as the text.
    width = Math.max(300, Math.min(WIDEST, chart.clientWidth || WIDEST));
    const cells = shown(), x = factor(state.x), hues = state.hue ? levels(factor(state.hue)) : [""];
    const values = cells.flatMap((cell) => {
      const [estimate, mcse] = cell.values[measure()];
      return [estimate - 1.96 * (mcse ?? 0), estimate + 1.96 * (mcse ?? 0), theory(cell.values[measure()]) ?? estimate];
    });
    const svg = shape("svg", { class: "chart", viewBox: `0 0 ${width} ${HEIGHT}`, role: "group" });
    svg.setAttribute("aria-label", `${state.y} of ${cells.length} cells`);
    chart.replaceChildren(svg, key(hues));
    const y = scale(values.length ? values : [0], state.scale === "log");
    const levelsOfX = x < 0 ? [""] : levels(x), isNumber = x >= 0 && numeric(x);
    const numbers = levelsOfX.map(Number), wide = Math.max(...numbers) > 20 * Math.min(...numbers) && Math.min(...numbers) > 0;
    const along = isNumber ? scale(numbers, wide) : scale(levelsOfX.map((_, i) => i), false);
    const left = (cell) => LEFT + (width - LEFT - RIGHT) *
      along.place(isNumber ? Number(cell.levels[x]) : x < 0 ? 0 : levelsOfX.indexOf(cell.levels[x]));
    const top = (value) => state.scale === "log" && value <= 0 ? HEIGHT - BOTTOM
      : HEIGHT - BOTTOM - y.place(value) * (HEIGHT - TOP - BOTTOM);
    axes(svg, along, y, levelsOfX.map((level, i) => [left({ levels: { [x]: level } }), level || "all"]));
    const meant = data.claims[state.claim]?.cells;
    const lines = {};
    for (const cell of cells) (lines[cell.levels.filter((_, i) => i !== x).join("\n")] ??= []).push(cell);
    for (const line of Object.values(lines)) {
      const known = line.filter((cell) => theory(cell.values[measure()]) !== null).sort((a, b) => left(a) - left(b));
      const path = known.map((cell, i) => `${i ? "L" : "M"}${left(cell)} ${top(theory(cell.values[measure()]))}`).join("");
      const pale = meant && !line.some((cell) => meant.includes(cell.number));
      svg.append(shape("path", { class: pale ? "theory pale" : "theory", d: path, stroke: colour(line[0], hues) }));
    }
    for (const cell of cells) svg.append(point(cell, left(cell), top, colour(cell, hues), meant));
    tell(state.cell === null ? null : data.cells[state.cell]);
  }

  const colour = (cell, hues) => COLOURS[(state.hue ? hues.indexOf(cell.levels[factor(state.hue)]) : 0) % COLOURS.length];

  function key(hues) {
    const list = make("p", { class: "meta" }, state.hue ? `${grid().factors[factor(state.hue)].label}: ` : "");
    hues.forEach((level, i) => {
      if (!state.hue) return;
      const dot = shape("svg", { width: 12, height: 12 });
      dot.append(shape("circle", { cx: 6, cy: 6, r: 5, fill: COLOURS[i % COLOURS.length] }));
      list.append(dot, ` ${level}  `);
    });
    return list;
  }

  function point(cell, at, top, stroke, meant) {
    const [estimate, mcse] = cell.values[measure()], pale = meant && !meant.includes(cell.number) ? " pale" : "";
    const group = shape("g", { class: pale });
    group.append(
      shape("line", { class: "bar", stroke, x1: at, x2: at, y1: top(estimate - 1.96 * (mcse ?? 0)), y2: top(estimate + 1.96 * (mcse ?? 0)) }),
      shape("circle", { class: `point${cell.number === state.cell ? " pinned" : ""}`, stroke, cx: at, cy: top(estimate), r: 5, tabindex: 0, "data-cell": cell.number }));
    const circle = group.lastChild;
    circle.setAttribute("aria-label", `cell ${cell.number}: ${short(estimate)} ± ${short(mcse)}`);
    for (const event of ["pointerenter", "focus"]) circle.addEventListener(event, () => tell(cell));
    circle.addEventListener("pointerleave", () => tell(state.cell === null ? null : data.cells[state.cell]));
    circle.addEventListener("click", () => { state.cell = cell.number; draw(); });
    return group;
  }

  // An address such as #explore?claim=floor or #explore?grid=angles&y=mse&cell=3 says what is drawn.
  function follow() {
    const [place, query] = decodeURI(location.hash).split("?");
    const asked = place === "#explore" && query ? Object.fromEntries(new URLSearchParams(query)) : null;
    if (asked?.cell !== undefined && data.cells[asked.cell] && !asked.grid) {
      asked.grid = data.grids.find((each) => each.cells[0] <= asked.cell && asked.cell < each.cells[1]).name;
    }
    if (asked || !state.grid) {
      complete(asked ?? {});
      draw();
    }
    if (asked) document.getElementById("explore").scrollIntoView();
  }
  addEventListener("hashchange", follow);
  addEventListener("resize", draw);
  follow();
}

const cells = document.getElementById("cells");
if (cells) explore(JSON.parse(cells.textContent));
