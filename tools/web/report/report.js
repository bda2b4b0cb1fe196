'use strict';
const COLOURS = {forward: '#4c8edb', backward: '#ef8a3c', gather: '#2fa58e', reduce: '#9168cf', verdict: '#d0548f', optimize: '#d9b23c', load: '#7f9bb3', snapshot: '#8d6e63'};
const OTHERS = ['#7c93ab', '#6fa8a0', '#a48fb8', '#b39b77', '#8aa66f', '#b57f8c'];
const given = new Map();
const colourOf = (kind) => COLOURS[kind] || given.get(kind) || given.set(kind, OTHERS[given.size % OTHERS.length]).get(kind);

function add(parent, tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent.append(made);
  return made;
}
const ms = (value) => `${value.toFixed(3)} ms`;
const percent = (value) => `${(100 * value).toFixed(1)} %`;
const nameOf = (rank) => (rank === 4294967295 ? 'launcher' : `rank ${rank}`);

function table(parent, heads, rows) {
  const made = add(parent, 'table'), head = add(add(made, 'thead'), 'tr'), body = add(made, 'tbody');
  for (const title of heads) add(head, 'th', title.replace(/^#/, ''), title.startsWith('#') ? {class: 'number'} : {});
  for (const cells of rows) {
    const row = add(body, 'tr');
    cells.forEach((cell, i) => {
      if (cell instanceof Node) add(row, 'td').append(cell); else add(row, 'td', cell, heads[i].startsWith('#') ? {class: 'number'} : {});
    });
  }
}

function bar(parts, whole) {
  const made = document.createElement('div');
  made.className = 'bar';
  for (const [kind, time] of Object.entries(parts).sort((a, b) => b[1] - a[1]))
    add(made, 'span', undefined, {style: `width:${100 * time / whole}%;background:${colourOf(kind)}`, title: `${kind} ${ms(time)}`});
  return made;
}

function partsText(parts, whole) {
  return Object.entries(parts).sort((a, b) => b[1] - a[1]).filter(([, time]) => time / whole > 0.0005).slice(0, 4)
    .map(([name, time]) => `${name} ${percent(time / whole)}`).join(', ');
}

function showReport(main, report, name) {
  add(main, 'h1', name);
  add(main, 'p', `steps ${report.first_step} to ${report.last_step}: ${ms(report.step_ms)} a step; ${percent(report.bubble)} of the compute lanes' time between a step's first and last operation is idle`);
  for (const rank of report.ranks) {
    add(main, 'h2', nameOf(rank.rank));
    table(main, ['lane', '#busy', '', 'waits for'], rank.lanes.map((lane) => [lane.lane, percent(lane.busy_share), bar(lane.kinds_ms, rank.window_ms), partsText(lane.waits_ms, rank.window_ms)]));
    add(main, 'p', `communication ${ms(rank.communication_ms / report.steps)} a step, ${percent(rank.overlap)} of it beside compute, exposed ${ms(rank.exposed_ms / report.steps)}; waiting for other ranks ${ms(rank.waiting_for_ranks_ms / report.steps)}`, {class: 'faint'});
  }
  const late = report.ranks.filter((rank) => rank.collectives > 0);
  if (late.length > 0) {
    add(main, 'h2', 'Who keeps whom waiting');
    table(main, ['rank', '#last to come', '#keeps others, a step', '#longest step'], late.map((rank) => [nameOf(rank.rank), percent(rank.last_to_come / rank.collectives), ms(rank.kept_others_ms / report.steps), ms(rank.longest_step_ms)]));
  }
  add(main, 'h2', 'Slots that would help');
  const replay = report.replay;
  if (replay) add(main, 'p', `The operations played again, each as long as it took, with one slot more of each edge; with those that there are a step is ${ms(replay.step_ms)} then.`, {class: 'faint'});
  if (report.slots_that_would_help.length === 0) add(main, 'p', replay ? 'none: one more of any edge gains less than 0.5 % of a step' : 'none: compute waited for no free slot of an edge', {class: 'faint'});
  else table(main, ['edge', '#one more gains, a step', '#compute waited, a step', '#slots now', '#one more takes'], report.slots_that_would_help.map((a) => [a.edge, replay ? `${ms(a.gained_ms)} (${percent(a.gained_ms / replay.step_ms)})` : '', ms(a.waited_ms / report.steps / report.ranks.length), a.slots ? String(a.slots) : '', a.slots ? `${(a.slot_bytes / 1048576).toFixed(3)} MiB` : '']));
  const path = report.critical_path;
  add(main, 'h2', 'Critical path');
  main.append(bar({...path.kinds_ms, 'between operations': path.gaps_ms}, path.ms));
  const keys = add(main, 'p');
  for (const [kind, time] of Object.entries({...path.kinds_ms, 'between operations': path.gaps_ms}).sort((a, b) => b[1] - a[1])) {
    const key = add(keys, 'span', undefined, {class: 'key'});
    add(key, 'i', undefined, {style: `background:${colourOf(kind)}`});
    key.append(`${kind} ${percent(time / path.ms)}`);
  }
  const hops = [...path.hops].sort((a, b) => b.ms + b.gap_ms - a.ms - a.gap_ms).slice(0, 12);
  table(main, ['rank', 'lane', 'operation', '#step', '#takes', '#after', 'what it waited for'], hops.map((hop) => [nameOf(hop.rank), hop.lane, hop.operation, String(hop.step), ms(hop.ms), ms(hop.gap_ms), hop.waited_for]));
}

const data = JSON.parse(document.getElementById('report-data').textContent);
document.title = `${data.names.join(', ')} · report`;
data.reports.forEach((report, i) => showReport(document.getElementById('report'), report, data.names[i]));
