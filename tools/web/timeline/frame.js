'use strict';
// The frame around the rows: ruler, steps, marks, overview.

function ticksOf(from, until, most) {
  const rough = (until - from) / most, power = 10 ** Math.floor(Math.log10(Math.max(rough, 1e-3)));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) || 10 * power;
  const ticks = [];
  for (let t = Math.ceil(from / step) * step; t <= until; t += step) ticks.push(t);
  return {ticks, step};
}

Object.assign(Painter.prototype, {
  drawTop() {
    const c = this.context, {view, style} = this;
    c.fillStyle = style.back;
    c.fillRect(0, 0, this.width, TOP);
    const {ticks, step} = ticksOf(view.from, view.until, this.chart / 110);
    const digits = step >= 1e6 ? Math.max(0, Math.ceil(6 - Math.log10(step))) : Math.max(0, Math.ceil(-Math.log10(step / (step >= 1e3 ? 1e3 : 1))));
    c.font = '11px system-ui, sans-serif';
    for (const tick of ticks) {
      const x = this.x(tick);
      c.fillStyle = style.line;
      c.fillRect(Math.round(x), RULER - 6, 1, 6);
      c.fillStyle = style.faint;
      const text = step >= 1e9 ? `${(tick / 1e9).toFixed(step >= 1e9 ? 0 : 1)} s` : step >= 1e6 ? `${(tick / 1e6).toFixed(digits)} ms` : step >= 1e3 ? `${(tick / 1e3).toFixed(digits)} µs` : `${tick.toFixed(0)} ns`;
      c.fillText(text, x + 3, RULER / 2);
    }
    this.drawSteps();
    this.drawMarks();
    c.fillStyle = style.back;
    c.fillRect(0, 0, GUTTER, TOP);
    c.fillStyle = style.faint;
    c.fillText(timeText(view.until - view.from, 2), 8, RULER / 2);
    c.fillText('steps', 22, RULER + STEPS / 2);
    c.fillText('marks', 22, RULER + STEPS + MARKS_BAND / 2);
    c.fillStyle = style.line;
    c.fillRect(0, TOP - 1, this.width, 1);
    c.fillRect(GUTTER - 1, 0, 1, this.height);
  },

  drawSteps() {
    const c = this.context, steps = this.seenSteps;
    const many = steps.length > this.chart / 8;
    if (many) {
      c.fillStyle = this.style.faint;
      c.fillText(`steps ${steps[0][0]} to ${steps[steps.length - 1][0]}`, GUTTER + 6, RULER + STEPS / 2);
      return;
    }
    for (const [step, from, until] of steps) {
      const left = Math.max(GUTTER, this.x(from)), right = Math.min(this.width, this.x(until));
      c.fillStyle = step % 2 ? this.style.band : this.style.idle;
      c.fillRect(left, RULER + 1, Math.max(1, right - left), STEPS - 2);
      c.fillStyle = this.style.faint;
      if (right - left > 24) c.fillText(right - left > 60 ? `step ${step}` : `${step}`, left + 4, RULER + STEPS / 2);
    }
  },

  drawMarks() {
    const c = this.context, {marks, ranks} = this.timeline.header;
    const seen = marks.map((mark, i) => ({mark, i})).filter(({mark}) => mark[1] >= this.view.from && mark[1] <= this.view.until);
    this.marksInView = [];
    let free = -Infinity;
    for (const {mark: [rank, time, text], i} of seen) {
      const x = this.x(time);
      c.fillStyle = colourOfMark(text);
      if (seen.length <= 200) {
        c.globalAlpha = 0.5;
        c.fillRect(Math.round(x), TOP, 1, this.height - TOP);
        c.globalAlpha = 1;
      }
      c.beginPath();
      c.moveTo(x, TOP - 2);
      c.lineTo(x - 4, TOP - 10);
      c.lineTo(x + 4, TOP - 10);
      c.fill();
      this.marksInView.push({x, index: i});
      const short = text.split(/[:{]/)[0] + (ranks[rank].label === 'launcher' ? '' : ` (${ranks[rank].label})`);
      const width = c.measureText(short).width;
      if (x < free) continue;
      c.fillText(short, x + 6, RULER + STEPS + MARKS_BAND / 2);
      free = x + width + 16;
    }
  },

  /// How busy the compute lanes are over the whole run, drawn once; the view as a frame.
  drawOverview() {
    const c = this.overview.getContext('2d'), {header} = this.timeline;
    const width = this.overview.width, height = this.overview.height;
    if (!this.overviewImage) {
      const cover = new Float32Array(width * 4), rows = header.rows.filter((row) => row.track === 'compute');
      const kept = {cover: this.cover, pixels: this.pixels, view: this.view};
      this.pixels = width;
      this.view = {from: 0, until: Math.max(1, header.length)};
      this.scale = width / this.view.until;
      for (const row of rows) {
        const level = row.levels.length - 1;
        const blocks = level < 0 ? row.count : row.levels[level].start.length;
        for (let b = 0; b < blocks; ++b) this.addBlock(row, level, b, cover, null);
      }
      Object.assign(this, kept);
      const image = c.createImageData(width, height), back = rgbOf(this.style.back.length === 7 ? this.style.back : '#ffffff');
      for (let x = 0; x < width; ++x) {
        const all = cover[x * 4 + 3], filled = Math.round(height * Math.min(1, all / Math.max(1, rows.length)));
        for (let y = 0; y < height; ++y) {
          const inside = y >= height - filled, q = (y * width + x) * 4;
          for (let k = 0; k < 3; ++k) image.data[q + k] = inside && all > 0 ? cover[x * 4 + k] / all : back[k];
          image.data[q + 3] = 255;
        }
      }
      this.overviewImage = image;
    }
    c.putImageData(this.overviewImage, 0, 0);
    for (const [, time, text] of header.marks) {
      c.fillStyle = colourOfMark(text);
      c.fillRect(time / Math.max(1, header.length) * width, 0, 1, 5 * this.ratio);
    }
    const left = this.view.from / header.length * width, right = this.view.until / header.length * width;
    c.fillStyle = 'rgba(120,130,145,0.35)';
    c.fillRect(0, 0, left, height);
    c.fillRect(right, 0, width - right, height);
    c.strokeStyle = this.style.accent;
    c.lineWidth = 2 * this.ratio;
    c.strokeRect(left, 1, Math.max(3, right - left), height - 2);
  },
});
