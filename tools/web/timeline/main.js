'use strict';
// Wires it up: the view, what moves it, and what is chosen.

class Viewer {
  constructor(timeline) {
    this.timeline = timeline;
    this.length = Math.max(1, timeline.header.length);
    this.layout = new Layout(timeline);
    this.canvas = document.getElementById('canvas');
    this.painter = new Painter(timeline, this.layout, this.canvas, document.getElementById('overview'));
    this.painter.showLetters = true;
    this.details = new Details(timeline, this.painter, (span) => this.show(span));
    this.view = {from: -this.length * 0.005, until: this.length * 1.005, scroll: 0};
    this.chosen = -1;
    this.matches = null;
    this.drawn = 0;
    this.addSteps();
    this.addLegend();
    this.setPressed('actors', this.layout.showActors);
  }

  addSteps() {
    const select = document.getElementById('step');
    select.append(element('option', 'all steps', {value: ''}));
    for (const [step] of this.timeline.header.steps) select.append(element('option', `step ${step}`, {value: step}));
  }

  addLegend() {
    const {header, spans, kinds, kindOfName} = this.timeline, total = new Float64Array(kinds.length);
    for (const row of header.rows) {
      if (isActor(row.track)) continue;
      for (let i = row.start; i < row.start + row.count; ++i) total[kindOfName[spans.name[i]]] += spans.end[i] - spans.start[i];
    }
    const order = kinds.map((kind, i) => i).filter((i) => total[i] > 0).sort((a, b) => total[b] - total[a]).slice(0, 10);
    const legend = document.getElementById('legend');
    for (const i of order) {
      const button = element('button', undefined, {title: `${timeText(total[i])} in all: click to search`});
      button.append(element('span', undefined, {class: 'swatch', style: `background:${this.painter.css[i]}`}), kinds[i]);
      button.addEventListener('click', () => {
        const search = document.getElementById('search');
        search.value = search.value === kinds[i] ? '' : kinds[i];
        this.search(search.value);
      });
      legend.append(button);
    }
  }

  redraw() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      this.drawNow();
    });
  }

  drawNow() {
    this.painter.draw(this.view, this.chosen, this.matches);
    ++this.drawn;
    const letters = this.painter.lettersInView;
    const arrows = !this.painter.showLetters ? 'letters hidden' : letters > MOST_ARROWS ? `${letters.toLocaleString('en')} letters in view: zoom in to see them` : `${letters} letters in view`;
    document.getElementById('status').textContent = `${this.timeline.header.spans.toLocaleString('en')} spans · ${arrows}`;
  }

  setView(from, until) {
    const least = 50, most = this.length * 1.2;
    const length = Math.min(most, Math.max(least, until - from));
    const middle = Math.min(this.length, Math.max(0, (from + until) / 2));
    this.view.from = middle - length / 2;
    this.view.until = middle + length / 2;
    this.redraw();
  }

  zoom(factor, at) {
    const time = at === undefined ? (this.view.from + this.view.until) / 2 : at;
    this.setView(time - (time - this.view.from) * factor, time + (this.view.until - time) * factor);
  }

  move(share) {
    const by = (this.view.until - this.view.from) * share;
    this.setView(this.view.from + by, this.view.until + by);
  }

  scroll(by) {
    const most = Math.max(0, this.layout.height - (this.painter.height - TOP));
    this.view.scroll = Math.min(most, Math.max(0, this.view.scroll + by));
    this.redraw();
  }

  whole() {
    document.getElementById('step').value = '';
    this.setView(-this.length * 0.005, this.length * 1.005);
  }

  showStep(step) {
    const {steps} = this.timeline.header, found = steps.find(([number]) => number === Number(step));
    if (!found) return this.whole();
    document.getElementById('step').value = found[0];
    const margin = Math.max(1000, (found[2] - found[1]) * 0.06);
    this.setView(found[1] - margin, found[2] + margin);
  }

  /// Of a timeline that was cut to some steps: these. Marks of other times are still there.
  showSteps() {
    const {steps} = this.timeline.header;
    if (steps.length === 0) return;
    const from = steps[0][1], until = steps[steps.length - 1][2], margin = Math.max(1000, (until - from) * 0.06);
    this.setView(from - margin, until + margin);
  }

  stepBy(by) {
    const {steps} = this.timeline.header, middle = (this.view.from + this.view.until) / 2, now = document.getElementById('step').value;
    let at = steps.findIndex(([step]) => String(step) === now);
    if (at < 0) {
      at = steps.findIndex(([, , until]) => until >= middle);
      if (at >= 0) return this.showStep(steps[at][0]);
      at = steps.length;
    }
    const next = steps[Math.min(steps.length - 1, Math.max(0, at + by))];
    if (next) this.showStep(next[0]);
  }

  choose(span) {
    this.chosen = span;
    this.details.show(span);
    this.redraw();
  }

  /// Chooses a span and brings it into view.
  show(span) {
    if (span < 0) return;
    const {spans} = this.timeline, row = this.painter.rowOf(span), {rank, track} = this.timeline.header.rows[row];
    if (this.layout.folded.has(rank)) this.layout.fold(rank);
    if (isActor(track) && !this.layout.showActors) this.toggleActors();
    const line = this.layout.lineOfRow[row], shown = this.painter.height - TOP;
    if (line && (line.y < this.view.scroll || line.y + line.height > this.view.scroll + shown)) this.scroll(line.y - shown / 2 - this.view.scroll);
    const length = this.view.until - this.view.from, wide = spans.end[span] - spans.start[span];
    if (spans.start[span] < this.view.from || spans.end[span] > this.view.until || wide < length / 300) {
      const wanted = Math.max(wide * 12, Math.min(length, Math.max(wide * 60, 20000)));
      this.setView((spans.start[span] + spans.end[span] - wanted) / 2, (spans.start[span] + spans.end[span] + wanted) / 2);
    }
    this.choose(span);
  }

  search(text) {
    this.matches = searchSpans(this.timeline, text);
    document.getElementById('matches').textContent = this.matches ? `${this.matches.count.toLocaleString('en')} found` : '';
    this.redraw();
  }

  match(forward) {
    if (!this.matches || this.matches.count === 0) return;
    let next = nextMatch(this.timeline, this.matches, this.chosen, forward);
    if (next < 0) next = nextMatch(this.timeline, this.matches, -1, forward);
    this.show(next);
  }

  setPressed(id, on) { document.getElementById(id).setAttribute('aria-pressed', String(on)); }
  toggleActors() {
    this.layout.showActors = !this.layout.showActors;
    this.layout.build();
    this.setPressed('actors', this.layout.showActors);
    this.scroll(0);
  }
  toggleLetters() {
    this.painter.showLetters = !this.painter.showLetters;
    this.setPressed('letters', this.painter.showLetters);
    this.redraw();
  }
  toggleTheme() {
    const root = document.documentElement;
    root.dataset.theme = root.dataset.theme === 'dark' ? 'light' : 'dark';
    this.resized();
  }
  resized() {
    this.painter.resize();
    this.scroll(0);
  }

  /// The span at a place of the canvas, within three pixels; −1 without one.
  spanAt(x, y) {
    if (x < GUTTER || y < TOP) return -1;
    const line = this.layout.lineAt(y - TOP + this.view.scroll);
    if (!line || line.type !== 'row') return -1;
    const {start, end} = this.timeline.spans, {row} = line, time = this.painter.time(x), near = 3 / this.painter.chart * (this.view.until - this.view.from);
    const after = upperBound(start, time, row.start, row.start + row.count);
    const candidates = [after - 1, after].filter((i) => i >= row.start && i < row.start + row.count);
    let best = -1, least = near;
    for (const i of candidates) {
      const distance = time < start[i] ? start[i] - time : time > end[i] ? time - end[i] : -1;
      if (distance <= least) {
        least = distance;
        best = i;
      }
    }
    return best;
  }

  neighbour(by) {
    if (this.chosen < 0) return;
    const {start, count} = this.timeline.header.rows[this.painter.rowOf(this.chosen)];
    this.show(Math.min(start + count - 1, Math.max(start, this.chosen + by)));
  }

  /// The span of the row above or below that runs at the chosen one's start.
  rowBy(by) {
    if (this.chosen < 0) return;
    const lines = this.layout.lines.filter((line) => line.type === 'row' && line.row.count > 0);
    const at = lines.findIndex((line) => line.id === this.painter.rowOf(this.chosen)), next = lines[at + by];
    if (next) this.show(this.details.spanAt(next.id, this.timeline.spans.start[this.chosen]));
  }
}

function start(timeline) {
  document.getElementById('title').textContent = timeline.header.title;
  document.title = `${timeline.header.title} · timeline`;
  const viewer = new Viewer(timeline);
  if (timeline.header.cut) viewer.showSteps();
  viewer.drawNow();
  listen(viewer);
  return viewer;
}

document.documentElement.dataset.theme = window.matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
window.timeline = loadTimeline().then((timeline) => {
  const viewer = start(timeline);
  viewer.firstPaint = performance.now();
  window.viewer = viewer;
  return viewer;
}).catch((problem) => {
  document.getElementById('status').textContent = `The timeline cannot be shown: ${problem.message}`;
  throw problem;
});
