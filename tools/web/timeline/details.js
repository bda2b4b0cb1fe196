'use strict';
// What is said of a span: the tip under the pointer, and the panel of the chosen one.

function spanTitle(timeline, span) { return timeline.header.names[timeline.spans.name[span]]; }

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function fieldsOf(timeline, painter, span) {
  const {spans, header} = timeline, row = header.rows[painter.rowOf(span)];
  const fields = [['where', `${header.ranks[row.rank].label}, ${row.track}`]];
  const actor = isActor(row.track);
  fields.push(['step', `${spans.step[span]}, micro-batch ${spans.micro[span]}, unit ${spans.unit[span]}, epoch ${spans.epoch[span]}`]);
  fields.push(['starts', timeText(spans.start[span], 6)]);
  const step = header.steps.find(([number]) => number === spans.step[span]);
  if (step && spans.start[span] >= step[1]) fields.push(['in its step', `${timeText(spans.start[span] - step[1])} after the first compute operation`]);
  fields.push(['lasts', timeText(spans.end[span] - spans.start[span])]);
  if (spans.queued[span] > 0) fields.push([actor ? 'letter on its way' : 'issued', `${timeText(spans.queued[span])} before it began`]);
  fields.push(['outcome', ['ok', 'failed', 'halted'][spans.outcome[span]]]);
  return fields;
}

class Details {
  /// `go(span)` chooses and shows a span.
  constructor(timeline, painter, go) {
    Object.assign(this, {timeline, painter, go, panel: document.getElementById('details'), tip: document.getElementById('tip')});
  }

  show(span) {
    this.panel.hidden = span < 0;
    if (span < 0) return;
    const {timeline, painter} = this;
    const colour = painter.css[timeline.kindOfName[timeline.spans.name[span]]];
    const title = element('h2');
    title.append(element('span', undefined, {class: 'swatch', style: `background:${colour}`}), spanTitle(timeline, span));
    const list = element('dl');
    for (const [name, value] of fieldsOf(timeline, painter, span)) list.append(element('dt', name), element('dd', value));
    this.panel.replaceChildren(title, list);
    this.addLetters(span);
  }

  addLetters(span) {
    const {timeline, painter} = this, {letters, header} = timeline, row = painter.rowOf(span);
    const found = painter.lettersOf(span);
    if (found.length === 0) return;
    const list = element('ul');
    for (const i of found) {
      const out = letters.from[i] === row, other = header.rows[out ? letters.to[i] : letters.from[i]];
      const item = element('li'), text = `${out ? '→' : '←'} ${header.names[letters.name[i]]} ${out ? 'to' : 'from'} ${header.ranks[other.rank].label} ${other.track}, ${timeText(letters.way[i], 1)} on its way`;
      const button = element('button', text);
      button.addEventListener('click', () => this.go(this.spanAt(out ? letters.to[i] : letters.from[i], out ? letters.sent[i] + letters.way[i] : letters.sent[i])));
      item.append(button);
      list.append(item);
    }
    this.panel.append(element('h3', 'letters'), list);
  }

  spanAt(row, time) {
    const {start} = this.timeline.spans, {start: from, count} = this.timeline.header.rows[row];
    return Math.max(from, upperBound(start, time, from, from + count) - 1);
  }

  showMark(index) {
    const [rank, time, text] = this.timeline.header.marks[index];
    this.panel.hidden = false;
    const title = element('h2');
    title.append(element('span', undefined, {class: 'swatch', style: `background:${colourOfMark(text)}`}), text.split(':')[0]);
    const list = element('dl');
    list.append(element('dt', 'at'), element('dd', timeText(time, 6)), element('dt', 'by'), element('dd', this.timeline.header.ranks[rank].label),
                element('dt', 'what'), element('dd', text));
    this.panel.replaceChildren(title, list);
  }

  showClock(rank) {
    const {label, clock, overwritten} = this.timeline.header.ranks[rank];
    this.panel.hidden = false;
    const list = element('dl');
    const add = (name, value) => list.append(element('dt', name), element('dd', value));
    if (clock && clock.letters > 0) {
      add('clock', `off by ${timeText(clock.offset)} ± ${timeText(clock.error)}`);
      add('estimated over', `${clock.letters} letters`);
      add('times', clock.aligned ? 'aligned by it' : 'as they are: it lies within its error');
    } else {
      add('clock', clock && clock.known ? 'the one that the others are held to' : 'taken as it is: no letters to compare by');
    }
    if (overwritten > 0) add('older events', `${overwritten} had no room in the ring buffer`);
    this.panel.replaceChildren(element('h2', label), list);
  }

  /// `x`, `y`: of the pointer inside of the canvas.
  hover(span, x, y, width) {
    this.tip.hidden = span < 0;
    if (span < 0) return;
    const {spans} = this.timeline;
    this.tip.textContent = `${spanTitle(this.timeline, span)} · step ${spans.step[span]} · ${timeText(spans.end[span] - spans.start[span])}`;
    this.tip.style.top = `${y + 52}px`;
    const left = x + 14, tipWidth = this.tip.offsetWidth;
    this.tip.style.left = `${left + tipWidth > width ? Math.max(0, x - tipWidth - 8) : left}px`;
  }
}
