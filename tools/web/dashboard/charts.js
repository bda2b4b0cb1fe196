'use strict';
// Lines over the steps of a run: the mean of what a pixel stands for, and a band from the least to the most of it.

function shortNumber(value) {
  if (value === null || !Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size === 0) return '0';
  if (size >= 1e9) return `${(value / 1e9).toFixed(2)} G`;
  if (size >= 1e6) return `${(value / 1e6).toFixed(2)} M`;
  if (size >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
  if (size >= 1e-3) return value.toPrecision(4).replace(/\.?0+$/, '');
  return value.toExponential(2);
}
const bytesText = (value) => (value >= 1073741824 ? `${(value / 1073741824).toFixed(2)} GiB` : `${(value / 1048576).toFixed(1)} MiB`);

const left = 52, right = 6;  // beside the plot of a chart, pixels

class Chart {
  constructor(parent, title, key, {text = shortNumber, colour = '#4c8edb'} = {}) {
    Object.assign(this, {key, text, colour});
    const figure = document.createElement('figure'), caption = document.createElement('figcaption');
    this.output = document.createElement('output');
    this.canvas = document.createElement('canvas');
    caption.append(title, this.output);
    figure.append(caption, this.canvas);
    parent.append(figure);
    this.canvas.addEventListener('pointermove', (event) => {
      this.pointer = event.offsetX;
      this.draw();
    });
    this.canvas.addEventListener('pointerleave', () => {
      this.pointer = undefined;
      this.draw();
    });
  }

  /// `first`, `columns` as MetricsHistory gives them: point i stands for the steps behind the point before up to `columns.step[i]`.
  show({first, columns}) {
    this.first = first;
    this.steps = columns.step;
    this.values = columns[this.key];
    this.draw();
  }

  /// Pixels of its width that there are for points: more could not be told apart, nor pointed at.
  columns() {
    return Math.max(1, Math.round(this.canvas.clientWidth - left - right));
  }

  range() {
    let low = Infinity, high = -Infinity;
    for (const value of this.values.least) if (value !== null) low = Math.min(low, value);
    for (const value of this.values.most) if (value !== null) high = Math.max(high, value);
    if (low > high) return [0, 1];
    const margin = (high - low || Math.abs(high) || 1) * 0.06;
    return [low >= 0 && low < 0.3 * high ? 0 : low - margin, high + margin];
  }

  draw() {
    if (!this.steps) return;
    const ratio = window.devicePixelRatio || 1, width = this.canvas.clientWidth, height = this.canvas.clientHeight, c = this.canvas.getContext('2d');
    if (this.canvas.width !== Math.round(width * ratio)) this.canvas.width = Math.round(width * ratio);
    if (this.canvas.height !== Math.round(height * ratio)) this.canvas.height = Math.round(height * ratio);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, height);
    const style = getComputedStyle(document.documentElement), [low, high] = this.range(), bottom = 18, count = this.steps.length;
    const first = this.first || 0, last = this.steps[count - 1] || 1;
    const x = (i) => left + (i < 0 ? 0 : (this.steps[i] - first) / Math.max(1, last - first) * (width - left - right));
    const y = (value) => 4 + (high - value) / (high - low) * (height - bottom - 8);
    c.font = '11px system-ui, sans-serif';
    for (const share of [0, 0.5, 1]) {
      const value = low + (high - low) * share;
      c.fillStyle = style.getPropertyValue('--line');
      c.fillRect(left, Math.round(y(value)), width - left - right, 1);
      c.fillStyle = style.getPropertyValue('--faint');
      c.fillText(this.text(value), 0, y(value) + 4, left - 6);
    }
    c.fillText(`step ${first}`, left, height - 3);
    const end = `step ${last}`;
    c.fillText(end, width - right - c.measureText(end).width, height - 3);
    this.band(c, x, y);
    this.line(c, x, y);
    this.tell(c, x, height - bottom);
  }

  band(c, x, y) {
    const {least, most} = this.values;
    c.fillStyle = `${this.colour}55`;
    for (let i = 0; i < least.length; ++i) {
      if (least[i] === null) continue;
      c.fillRect(x(i - 1), y(most[i]), Math.max(1, x(i) - x(i - 1)), Math.max(1, y(least[i]) - y(most[i])));
    }
  }

  line(c, x, y) {
    c.strokeStyle = this.colour;
    c.lineWidth = 1.6;
    c.beginPath();
    let down = false;
    this.values.mean.forEach((value, i) => {
      if (value === null) {
        down = false;
        return;
      }
      if (down) c.lineTo(x(i), y(value)); else c.moveTo(x(i), y(value));
      down = true;
    });
    c.stroke();
  }

  tell(c, x, bottom) {
    const {mean} = this.values;
    let at = mean.length - 1;
    if (this.pointer !== undefined && at >= 0) {
      at = this.steps.reduce((best, step, i) => (Math.abs(x(i) - this.pointer) < Math.abs(x(best) - this.pointer) ? i : best), 0);
      c.fillStyle = this.colour;
      c.fillRect(x(at), 4, 1, bottom - 4);
    }
    this.output.textContent = at < 0 ? '' : this.pointer === undefined ? `${this.text(mean[at])} at step ${this.steps[at]}` : this.point(at);
  }

  /// What is pointed at, with the steps that it stands for.
  point(at) {
    const {mean, least, most} = this.values, from = at > 0 ? this.steps[at - 1] + 1 : this.first, until = this.steps[at];
    if (from === until) return `${this.text(mean[at])} at step ${until}`;
    return `${this.text(mean[at])} (${this.text(least[at])} to ${this.text(most[at])}), steps ${from}–${until}`;
  }
}
