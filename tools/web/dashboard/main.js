'use strict';
const given = JSON.parse(document.getElementById('dashboard-data').textContent);
const byId = (id) => document.getElementById(id);

function add(parent, tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  parent.append(made);
  return made;
}

const charts = [['loss', 'loss', {colour: '#4c8edb'}], ['gradient norm', 'grad_norm', {colour: '#ef8a3c'}], ['tokens/s of a rank', 'tps', {colour: '#2fa58e'}],
                ['step, seconds', 'step_seconds', {colour: '#9168cf'}], ['learning rate', 'lr', {colour: '#d9b23c'}],
                ['memory planned', 'arena_peak_bytes', {colour: '#8d6e63', text: bytesText, tickText: shortBytes, binary: true}]].map(([title, key, options]) => new Chart(byId('charts'), title, key, options));
const heat = new HeatMap(byId('heat'), byId('heat-tip'), byId('heat-scale'));

async function get(path) {
  const answer = await fetch(path, {headers: {'X-Troupe-Token': given.token}});
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error || answer.statusText);
  return told;
}

function showRanks(view) {
  const body = byId('ranks').tBodies[0];
  body.replaceChildren();
  for (const rank of view.ranks) {
    const row = add(body, 'tr');
    add(row, 'td', `${rank.rank} (pid ${rank.pid} on ${rank.host})`);
    add(row, 'td', String(rank.step));
    const waits = rank.actors.filter((actor) => actor.waiting).map((actor) => `${actor.actor}: ${actor.waiting}`);
    add(row, 'td', rank.at_rest ? 'at rest' : waits.join('; '));
    add(row, 'td', rank.oldest ? `${rank.oldest} for ${rank.oldest_seconds.toFixed(3)} s` : '');
    add(row, 'td', bytesText(rank.resident_bytes), 'number');
    add(row, 'td', `${rank.silent_seconds.toFixed(1)} s ago`, rank.silent_seconds > 3 ? 'number bad' : 'number');
  }
  for (const rank of view.absent) add(add(body, 'tr'), 'td', `${rank} is absent`, 'bad');
}

function showSettings(settings) {
  const body = byId('settings').querySelector('tbody');
  for (const [key, written] of Object.entries(settings)) {
    const value = written.replace(/^"(.*)"$/, '$1');
    let input = body.querySelector(`input[name="${key}"]`);
    if (!input) {
      const row = add(body, 'tr'), label = add(add(row, 'td'), 'label', key);
      input = add(add(row, 'td'), 'input');
      input.name = input.id = key;
      label.htmlFor = key;
      input.addEventListener('input', () => input.classList.toggle('changed', input.value !== input.dataset.now));
    }
    // What somebody is writing stays; what another has changed is shown.
    if (!input.classList.contains('changed')) input.value = value;
    input.dataset.now = value;
  }
}

function showState(state) {
  const {view} = state;
  byId('headline').textContent = view.headline;
  byId('progress').firstElementChild.style.width = `${100 * view.step / Math.max(1, view.last_step)}%`;
  byId('progress').setAttribute('aria-valuetext', `step ${view.step} of ${view.last_step}`);
  document.title = `step ${view.step} · ${given.run}`;
  showRanks(view);
  showSettings(state.settings);
  heat.show(state.step_times);
}

function showJournal(lines) {
  const list = byId('journal');
  list.replaceChildren();
  for (const {time, event, ...fields} of lines.reverse()) {
    const item = add(list, 'li');
    add(item, 'time', time.slice(11, 19));
    add(item, 'b', event, /fault|not_sealed|respawn/.test(event) ? 'bad' : '');
    item.append(Object.entries(fields).filter(([, value]) => value !== '' && value !== null).map(([key, value]) => `${key} ${typeof value === 'object' ? JSON.stringify(value) : value}`).join(', '));
  }
}

/// Asks again a while after each answer, however long that took; a run that has ended leaves what it showed last.
function keepAsking(path, show, pause, parameters = () => '') {
  const ask = async () => {
    try {
      show(await get(path + parameters()));
    } catch (problem) {
      if (path === '/api/state') byId('headline').textContent = `no answer from the run (it has ended, or: ${problem.message})`;
    }
    setTimeout(ask, pause);
  };
  return ask();
}

async function change(dryRun) {
  const changes = [...byId('settings').querySelectorAll('input.changed')].map((input) => `${input.name}=${input.value}`);
  if (changes.length === 0) {
    byId('answer').textContent = 'nothing is changed';
    return;
  }
  const answer = await fetch('/api/set', {method: 'POST', headers: {'X-Troupe-Token': given.token, 'Content-Type': 'application/json'}, body: JSON.stringify({changes, dry_run: dryRun})});
  const told = await answer.json();
  byId('answer').textContent = told.done || told.error;
  byId('answer').className = told.error ? 'bad' : '';
  if (told.done && !dryRun) for (const input of byId('settings').querySelectorAll('input.changed')) input.classList.remove('changed');
}

byId('run').textContent = given.run;
byId('try').addEventListener('click', () => change(true));
byId('settings').addEventListener('submit', (event) => {
  event.preventDefault();
  change(false);
});
byId('record').addEventListener('submit', (event) => {
  event.preventDefault();
  window.open(`/timeline?steps=${encodeURIComponent(byId('record-steps').value)}`, '_blank');
});
window.addEventListener('resize', () => heat.draw());
window.ready = Promise.all([
  keepAsking('/api/state', showState, 1000),
  keepAsking('/api/history', (history) => charts.forEach((chart) => chart.show(history)), 2000, () => `?points=${charts[0].columns()}`),
  keepAsking('/api/journal', showJournal, 2000),
]);
