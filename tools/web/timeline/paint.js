'use strict';
// Draws a view [from, until) of the timeline. A row with few operations in view is drawn operation by operation; one with many as a strip
// of pixels, each the mean colour of what it covers, out of the level of detail that fits: the work depends on the screen, not on the run.

const GUTTER = 150, RULER = 22, STEPS = 16, MARKS_BAND = 16, TOP = RULER + STEPS + MARKS_BAND;
const FEW = 260, MOST_ARROWS = 900, FEW_ARROWS = 150, LEAST_COVER = 0.22;

class Painter {
  constructor(timeline, layout, canvas, overview) {
    Object.assign(this, {timeline, layout, canvas, overview});
    this.context = canvas.getContext('2d', {alpha: false});
    this.colours = coloursOf(timeline.kinds);
    this.css = this.colours.map(([r, g, b]) => `rgb(${r},${g},${b})`);
    this.dark = this.colours.map(([r, g, b]) => 0.3 * r + 0.59 * g + 0.11 * b < 140);
    this.labels = [];
    this.strips = document.createElement('canvas');
    this.resize();
  }

  resize() {
    this.ratio = window.devicePixelRatio || 1;
    for (const canvas of [this.canvas, this.overview]) {
      canvas.width = Math.round(canvas.clientWidth * this.ratio);
      canvas.height = Math.round(canvas.clientHeight * this.ratio);
    }
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.chart = Math.max(10, this.width - GUTTER);
    this.pixels = Math.max(10, Math.round(this.chart * this.ratio));
    this.strips.width = this.pixels;
    this.strips.height = 1;
    this.stripContext = this.strips.getContext('2d');
    this.image = this.stripContext.createImageData(this.pixels, 1);
    this.cover = new Float32Array(this.pixels * 4);
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    this.style = {back: of('--back'), band: of('--band'), line: of('--line'), text: of('--text'), faint: of('--faint'), accent: of('--accent'),
                  chosen: of('--chosen'), idle: of('--idle'), arrow: of('--arrow')};
    this.idle = rgbOf(this.style.idle);
    this.overviewImage = null;
  }

  x(time) { return GUTTER + (time - this.view.from) / (this.view.until - this.view.from) * this.chart; }
  time(x) { return this.view.from + (x - GUTTER) / this.chart * (this.view.until - this.view.from); }

  /// `view`: {from, until, scroll}; `chosen`: a span or −1; `matches`: {mask, count} or null.
  draw(view, chosen, matches) {
    this.view = view;
    this.seenSteps = this.stepsInView();
    const c = this.context;
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.fillStyle = this.style.back;
    c.fillRect(0, 0, this.width, this.height);
    c.textBaseline = 'middle';
    c.save();
    c.beginPath();
    c.rect(0, TOP, this.width, this.height - TOP);
    c.clip();
    for (const line of this.layout.lines) {
      const y = line.y - view.scroll + TOP;
      if (y + line.height < TOP || y > this.height) continue;
      this.drawLine(line, y, matches);
    }
    this.drawStepLines();
    this.lettersInView = this.drawLetters(chosen);
    this.drawChosen(chosen);
    c.restore();
    this.drawTop();
    this.drawOverview();
  }

  drawLine(line, y, matches) {
    const c = this.context;
    if (line.type === 'rank') {
      c.fillStyle = this.style.band;
      c.fillRect(0, y, this.width, line.height);
      c.fillStyle = this.style.text;
      c.font = '600 12px system-ui, sans-serif';
      c.fillText(`${this.layout.folded.has(line.rank) ? '▸' : '▾'} ${line.label}`, 8, y + line.height / 2);
      return;
    }
    if (line.type === 'row') {
      const first = this.firstIn(line.row), last = this.lastIn(line.row, first);
      if (last - first > FEW) this.drawStrip(line, y, first, last, matches); else this.drawSpans(line, y, first, last, matches);
    } else {
      this.drawCounter(line.counter, y, line.height);
    }
    c.fillStyle = this.style.back;
    c.fillRect(0, y, GUTTER, line.height);
    c.fillStyle = line.actor ? this.style.faint : this.style.text;
    c.font = `${line.actor ? 10 : 12}px system-ui, sans-serif`;
    const label = line.type === 'counter' ? `slots ${line.label}` : line.label;
    if (line.type === 'counter') c.fillStyle = this.style.faint;
    c.fillText(label, 22, y + line.height / 2, GUTTER - 28);
    if (line.type === 'counter') {
      c.textAlign = 'right';
      c.fillText(`≤ ${line.counter.most}`, GUTTER - 6, y + line.height / 2);
      c.textAlign = 'left';
    }
  }

  firstIn(row) {
    const {start, end} = this.timeline.spans;
    let first = upperBound(start, this.view.from, row.start, row.start + row.count);
    if (first > row.start && end[first - 1] > this.view.from) --first;
    return first;
  }
  lastIn(row, first) { return upperBound(this.timeline.spans.start, this.view.until, first, row.start + row.count); }

  drawSpans(line, y, first, last, matches) {
    const {spans, kindOfName} = this.timeline;
    const c = this.context, height = line.height - (line.actor ? 3 : 4), labels = [];
    let colour = -1;
    for (let i = first; i < last; ++i) {
      const left = Math.max(GUTTER - 2, this.x(spans.start[i])), right = Math.min(this.width + 2, this.x(spans.end[i]));
      const width = Math.max(right - left, 1);
      const kind = kindOfName[spans.name[i]];
      if (matches) c.globalAlpha = matches.mask[i] ? 1 : 0.18;
      if (kind !== colour) c.fillStyle = this.css[colour = kind];
      c.fillRect(left, y + 1, width > 3 ? width - 0.5 : width, height);
      if (spans.outcome[i] !== 0) {
        c.fillStyle = '#d93636';
        c.fillRect(left, y + height - 2, width, 3);
        colour = -1;
      }
      if (!line.actor && width > 20) labels.push(i, left, width);
    }
    if (labels.length > 0) this.drawLabels(labels, y + 1 + height / 2, matches);
    c.globalAlpha = 1;
  }

  /// The name where it fits, else its end ("L3") where that does; nothing is cut off. Widths are measured once a name.
  drawLabels(labels, y, matches) {
    const {spans, kindOfName, header} = this.timeline, c = this.context;
    c.font = '11px system-ui, sans-serif';
    for (let k = 0; k < labels.length; k += 3) {
      const [i, left, width] = [labels[k], labels[k + 1], labels[k + 2]], id = spans.name[i];
      let known = this.labels[id];
      if (!known) {
        const name = header.names[id], short = name.slice(name.lastIndexOf(' ') + 1);
        known = this.labels[id] = {name, short, full: c.measureText(name).width, part: c.measureText(short).width};
      }
      const text = known.full + 7 <= width ? known.name : known.part + 6 <= width ? known.short : '';
      if (!text) continue;
      if (matches) c.globalAlpha = matches.mask[i] ? 1 : 0.18;
      c.fillStyle = this.dark[kindOfName[id]] ? '#ffffff' : '#101418';
      c.fillText(text, left + 4, y);
    }
  }

  drawStrip(line, y, first, last, matches) {
    const {row} = line;
    const cover = this.cover.fill(0);
    let level = -1, count = last - first;
    while (count > 4 * this.pixels && level + 1 < row.levels.length) {
      ++level;
      count /= BLOCK;
    }
    const size = BLOCK ** (level + 1);
    const from = Math.floor((first - row.start) / size), until = Math.ceil((last - row.start) / size);
    this.scale = this.pixels / (this.view.until - this.view.from);
    for (let b = from; b < until; ++b) this.addBlock(row, level, b, cover, matches);
    const data = this.image.data, [ir, ig, ib] = this.idle;
    for (let p = 0, q = 0; p < this.pixels; ++p, q += 4) {
      const all = cover[q + 3];
      const seen = all > 0 ? Math.max(LEAST_COVER, Math.min(1, all)) : 0;
      data[q] = ir + (all > 0 ? (cover[q] / all - ir) * seen : 0);
      data[q + 1] = ig + (all > 0 ? (cover[q + 1] / all - ig) * seen : 0);
      data[q + 2] = ib + (all > 0 ? (cover[q + 2] / all - ib) * seen : 0);
      data[q + 3] = 255;
    }
    this.stripContext.putImageData(this.image, 0, 0);
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(this.strips, 0, 0, this.pixels, 1, GUTTER, y + 1, this.chart, line.height - (line.actor ? 3 : 4));
  }

  addBlock(row, level, block, cover, matches) {
    const {spans, kindOfName} = this.timeline;
    if (level < 0) {
      const i = row.start + block;
      if (block >= row.count) return;
      if (matches && !matches.mask[i]) return;
      this.addCover(cover, spans.start[i], spans.end[i], 1, kindOfName[spans.name[i]]);
      return;
    }
    const blocks = row.levels[level];
    if (block >= blocks.start.length) return;
    const start = blocks.start[block], end = blocks.end[block];
    if (end < this.view.from || start > this.view.until) return;
    if (!matches && (end - start) * this.scale <= 1.5) {
      this.addCover(cover, start, end, end > start ? blocks.busy[block] / (end - start) : 1, blocks.kind[block]);
      return;
    }
    for (let b = block * BLOCK; b < (block + 1) * BLOCK; ++b) this.addBlock(row, level - 1, b, cover, matches);
  }

  addCover(cover, start, end, share, kind) {
    const left = (start - this.view.from) * this.scale, right = Math.max((end - this.view.from) * this.scale, left + 0.05);
    const first = Math.max(0, Math.floor(left)), last = Math.min(this.pixels - 1, Math.floor(right));
    const [r, g, b] = this.colours[kind];
    for (let p = first; p <= last; ++p) {
      const part = (Math.min(right, p + 1) - Math.max(left, p)) * share;
      if (part <= 0) continue;
      const q = p * 4;
      cover[q] += r * part;
      cover[q + 1] += g * part;
      cover[q + 2] += b * part;
      cover[q + 3] += part;
    }
  }

  /// Slots in use: the most of each pixel's time, so that a short peak is seen.
  drawCounter(counter, y, height) {
    const {time, value} = this.timeline.counters;
    const c = this.context, end = counter.start + counter.count, most = Math.max(1, counter.most), full = height - 5;
    c.fillStyle = this.style.idle;
    c.fillRect(GUTTER, y + 1, this.chart, height - 3);
    c.beginPath();
    c.moveTo(GUTTER, y + height - 2);
    let at = upperBound(time, this.view.from, counter.start, end);
    let last = at > counter.start ? value[at - 1] : 0;
    const inView = upperBound(time, this.view.until, at, end) - at;
    if (inView <= 2 * this.chart) {
      let height0 = last / most * full;
      c.lineTo(GUTTER, y + height - 2 - height0);
      for (let i = at; i < at + inView; ++i) {
        const x = this.x(time[i]);
        c.lineTo(x, y + height - 2 - height0);
        height0 = value[i] / most * full;
        c.lineTo(x, y + height - 2 - height0);
        last = value[i];
      }
      c.lineTo(this.width, y + height - 2 - height0);
    } else {
      for (let x = 0; x < this.chart; ++x) {
        const next = upperBound(time, this.time(GUTTER + x + 1), at, end);
        let peak = last;
        const stride = Math.max(1, Math.floor((next - at) / 64));
        for (let i = at; i < next; i += stride) peak = Math.max(peak, value[i]);
        if (next > at) last = value[next - 1];
        at = next;
        const top = y + height - 2 - peak / most * full;
        c.lineTo(GUTTER + x, top);
        c.lineTo(GUTTER + x + 1, top);
      }
    }
    c.lineTo(this.width, y + height - 2);
    c.closePath();
    c.fillStyle = `rgba(${this.style.arrow},0.55)`;
    c.fill();
  }

  drawStepLines() {
    const c = this.context, steps = this.seenSteps;
    if (steps.length > this.chart / 12) return;
    c.fillStyle = this.style.line;
    for (const [, from] of steps) {
      const x = this.x(from);
      if (x >= GUTTER) c.fillRect(Math.round(x), TOP, 1, this.height - TOP);
    }
  }

  stepsInView() {
    const {steps} = this.timeline.header;
    let first = 0, end = steps.length;  // they follow each other in time
    while (first < end) {
      const middle = (first + end) >>> 1;
      if (steps[middle][2] >= this.view.from) end = middle; else first = middle + 1;
    }
    let last = first;
    while (last < steps.length && steps[last][1] <= this.view.until) ++last;
    return steps.slice(first, last);
  }

  letterY(row) { return this.layout.middleOfRow[row] - this.view.scroll + TOP; }

  /// Returns how many letters are in view. Arrows are drawn where they are few enough to be told apart, and those of the chosen span always.
  drawLetters(chosen) {
    const {letters} = this.timeline;
    if (letters.sent.length === 0) return 0;
    const first = upperBound(letters.sent, this.view.from - letters.longest, 0, letters.sent.length);
    const until = upperBound(letters.sent, this.view.until, first, letters.sent.length);
    const all = this.showLetters && until - first <= MOST_ARROWS;
    const c = this.context;
    c.save();
    c.beginPath();
    c.rect(GUTTER, TOP, this.chart, this.height - TOP);
    c.clip();
    if (all && until - first <= FEW_ARROWS) for (let i = first; i < until; ++i) this.drawArrow(i, `rgba(${this.style.arrow},0.75)`, 1);
    else if (all) this.drawLines(first, until);
    if (chosen >= 0) for (const i of this.lettersOf(chosen)) this.drawArrow(i, this.style.accent, 2);
    c.restore();
    return until - first;
  }

  /// Many letters: one path of straight lines.
  drawLines(first, until) {
    const {letters} = this.timeline, c = this.context;
    c.strokeStyle = `rgba(${this.style.arrow},0.6)`;
    c.lineWidth = 1;
    c.beginPath();
    for (let i = first; i < until; ++i) {
      c.moveTo(this.x(letters.sent[i]), this.letterY(letters.from[i]));
      c.lineTo(this.x(letters.sent[i] + letters.way[i]), this.letterY(letters.to[i]));
    }
    c.stroke();
  }

  drawArrow(i, colour, width) {
    const {letters} = this.timeline;
    const x1 = this.x(letters.sent[i]), x2 = this.x(letters.sent[i] + letters.way[i]);
    const y1 = this.letterY(letters.from[i]), y2 = this.letterY(letters.to[i]);
    if (Math.max(x1, x2) < GUTTER || Math.min(x1, x2) > this.width || Math.max(y1, y2) < TOP || Math.min(y1, y2) > this.height) return;
    const c = this.context, bend = Math.max(6, Math.min(40, Math.abs(x2 - x1) / 2));
    c.strokeStyle = c.fillStyle = colour;
    c.lineWidth = width;
    c.beginPath();
    c.moveTo(x1, y1);
    c.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
    c.stroke();
    c.beginPath();
    c.moveTo(x2 + 1, y2);
    c.lineTo(x2 - 5, y2 - 3);
    c.lineTo(x2 - 5, y2 + 3);
    c.fill();
  }

  /// Letters that left or reached the row of a span while it ran; an operation of a lane sends just after its end.
  lettersOf(span) {
    const {letters, spans, header} = this.timeline;
    const row = this.rowOf(span), from = spans.start[span] - 100, until = spans.end[span] + 100, found = [];
    const first = upperBound(letters.sent, from - letters.longest, 0, letters.sent.length);
    for (let i = first; i < letters.sent.length && letters.sent[i] <= until && found.length < 60; ++i) {
      const received = letters.sent[i] + letters.way[i];
      if (letters.from[i] === row && letters.sent[i] >= from) found.push(i);
      else if (letters.to[i] === row && received >= from && received <= until) found.push(i);
    }
    return header.rows[row] ? found : [];
  }

  rowOf(span) {
    const rows = this.timeline.header.rows;
    let low = 0, high = rows.length;
    while (low + 1 < high) {
      const middle = (low + high) >>> 1;
      if (rows[middle].start <= span) low = middle; else high = middle;
    }
    return low;
  }

  drawChosen(chosen) {
    if (chosen < 0) return;
    const line = this.layout.lineOfRow[this.rowOf(chosen)];
    if (!line) return;
    const {spans} = this.timeline, c = this.context;
    const left = Math.max(GUTTER, this.x(spans.start[chosen])), right = Math.min(this.width, this.x(spans.end[chosen]));
    const y = line.y - this.view.scroll + TOP;
    if (right < GUTTER || left > this.width) return;
    if (spans.queued[chosen] > 0 && !line.actor) {
      const issued = Math.max(GUTTER, this.x(spans.start[chosen] - spans.queued[chosen]));
      c.fillStyle = this.style.accent;
      c.globalAlpha = 0.35;
      c.fillRect(issued, y + line.height / 2 - 1, Math.max(0, left - issued), 2);
      c.globalAlpha = 1;
    }
    c.strokeStyle = this.style.chosen;
    c.lineWidth = 2;
    c.strokeRect(left - 0.5, y + 0.5, Math.max(right - left, 3), line.height - 3);
  }
}
