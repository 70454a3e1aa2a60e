#include "client/cli/report_page.h"

namespace kvtriage::cli {

const char kReportStyle[] = R"css(
:root { color-scheme: light dark; --fg: #1c2128; --bg: #fff; --dim: #667; --line: #d5dae0; --ink: #0b62c4; }
@media (prefers-color-scheme: dark) {
  :root { --fg: #e4e8ee; --bg: #14171b; --dim: #99a; --line: #353b44; --ink: #6fb1ff; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--fg); background: var(--bg); margin: 2rem auto;
       max-width: 70rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p.note { color: var(--dim); max-width: 48rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
.scroll { overflow-x: auto; }
.charts { display: flex; flex-wrap: wrap; gap: 1rem; }
.charts > * { flex: 1 1 24rem; max-width: 34rem; }
svg text { fill: var(--dim); font-size: 11px; }
svg .axis { stroke: var(--line); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: .85rem; }
.legend i { display: inline-block; width: 1rem; height: .25rem; margin-right: .3rem; vertical-align: middle; }
.strip { display: flex; align-items: center; gap: .6rem; margin: .15rem 0; }
.strip span { width: 9rem; color: var(--dim); font-size: .85rem; white-space: nowrap; }
.strip canvas { flex: 1; height: 14px; min-width: 0; border: 1px solid var(--line); image-rendering: pixelated; }
#where { min-height: 1.5em; color: var(--dim); }
select { font: inherit; max-width: 100%; }
)css";

const char kReportScript[] = R"js(
const data = JSON.parse(document.getElementById('data').textContent);
const svgNode = (name, attributes, text) => {
  const node = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
};
const policies = [...new Set(data.runs.map(run => run.policy))];
const colour = policy => `hsl(${(policies.indexOf(policy) * 137.5) % 360} 65% 50%)`;

function chart(id, key) {
  const box = document.getElementById(id);
  const points = data.runs.filter(run => run[key] !== null);
  if (points.length === 0) { box.append('not measured'); return; }
  const width = 520, height = 300, left = 46, bottom = 34, top = 10, right = 24;
  const highest = Math.max(...points.map(run => run[key]), 1e-9) * 1.05;
  const x = keep => left + keep * (width - left - right);
  const y = error => height - bottom - error / highest * (height - top - bottom);
  const svg = svgNode('svg', {viewBox: `0 0 ${width} ${height}`, width: '100%', style: `max-width:${width}px`});
  for (let step = 0; step <= 4; ++step) {
    const error = highest * step / 4, keep = step / 4;
    svg.append(svgNode('line', {class: 'axis', x1: left, x2: width - right, y1: y(error), y2: y(error)}));
    svg.append(svgNode('text', {x: left - 6, y: y(error) + 4, 'text-anchor': 'end'}, error.toFixed(2)));
    svg.append(svgNode('text', {x: x(keep), y: height - 16, 'text-anchor': 'middle'}, keep * 100 + ' %'));
  }
  svg.append(svgNode('text', {x: (left + width) / 2, y: height - 2, 'text-anchor': 'middle'}, 'tokens kept'));
  for (const policy of policies) {
    const line = points.filter(run => run.policy === policy).sort((a, b) => a.keep - b.keep);
    const path = line.map((run, i) => (i ? 'L' : 'M') + x(run.keep) + ' ' + y(run[key])).join('');
    svg.append(svgNode('path', {d: path, fill: 'none', stroke: colour(policy), 'stroke-width': 1.6}));
    for (const run of line) {
      const dot = svgNode('circle', {cx: x(run.keep), cy: y(run[key]), r: 3, fill: colour(policy)});
      dot.append(svgNode('title', {}, `${policy} at ${run.keep_text}: ${run[key].toFixed(4)}`));
      svg.append(dot);
    }
  }
  box.append(svg);
}

function legend() {
  const box = document.getElementById('legend');
  for (const policy of policies) {
    const item = document.createElement('span'), mark = document.createElement('i');
    mark.style.background = colour(policy);
    item.append(mark, policy);
    box.append(item);
  }
}

function strips(run) {
  const box = document.getElementById('strips'), where = document.getElementById('where');
  box.replaceChildren();
  const ink = getComputedStyle(document.documentElement).getPropertyValue('--ink');
  for (const list of run.lists) {
    const row = document.createElement('div'), label = document.createElement('span');
    const canvas = document.createElement('canvas');
    row.className = 'strip';
    label.textContent = `layer ${list.layer} head ${list.heads}`;
    canvas.width = list.shares.length;
    canvas.height = 1;
    const draw = canvas.getContext('2d');
    draw.fillStyle = ink;
    [...list.shares].forEach((digit, cell) => {
      draw.globalAlpha = parseInt(digit, 36) / 35;
      draw.fillRect(cell, 0, 1, 1);
    });
    canvas.onmousemove = event => {
      const cells = list.shares.length;
      const cell = Math.min(cells - 1, Math.max(0, Math.floor(event.offsetX / canvas.clientWidth * cells)));
      const first = Math.floor(cell * list.rows / cells), end = Math.floor((cell + 1) * list.rows / cells);
      where.textContent = `layer ${list.layer} head ${list.heads}, tokens ${first} to ${end - 1} of ${list.rows}: ` +
          `${Math.round(parseInt(list.shares[cell], 36) / 35 * 100)} % kept`;
    };
    row.append(label, canvas);
    box.append(row);
  }
}

chart('window-chart', 'error_mean');
chart('later-chart', 'future_mean');
legend();
const choice = document.getElementById('choice');
data.runs.forEach((run, i) => choice.append(new Option(`${run.policy} at ${run.keep_text}`, i)));
choice.onchange = () => strips(data.runs[choice.value]);
strips(data.runs[0]);
)js";

}  // namespace kvtriage::cli
