'use strict';
// Lines over the steps of a run, drawn by dygraphs: the mean of what a pixel stands for, in a band from the least to the most of it.

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
/// A tick of an axis, with no more digits than it needs.
const shortBytes = (value) => (value >= 1073741824 ? `${Number((value / 1073741824).toPrecision(4))} GiB` : `${Number((value / 1048576).toPrecision(3))} MiB`);
const bytesText = (value) => (value >= 1073741824 ? `${(value / 1073741824).toFixed(2)} GiB` : `${(value / 1048576).toFixed(1)} MiB`);

const labels = 56, tick = 3, right = 8;  // beside the plot of a chart, pixels

class Chart {
  constructor(parent, title, key, {text = shortNumber, tickText = text, binary = false, colour = '#4c8edb'} = {}) {
    Object.assign(this, {key, text, tickText, binary, colour});
    const figure = document.createElement('figure'), caption = document.createElement('figcaption');
    this.output = document.createElement('output');
    this.plot = document.createElement('div');
    this.plot.className = 'plot';
    caption.append(title, this.output);
    figure.append(caption, this.plot);
    parent.append(figure);
  }

  /// `first`, `columns` as MetricsHistory gives them: point i stands for the steps behind the point before up to `columns.step[i]`.
  show({first, columns}) {
    this.first = first;
    this.steps = columns.step;
    this.values = columns[this.key];
    if (this.steps.length === 0) return;
    const line = getComputedStyle(document.documentElement).getPropertyValue('--line'), now = {file: this.rows(), axisLineColor: line, gridLineColor: line};
    if (this.graph) this.graph.updateOptions(now); else this.graph = new Dygraph(this.plot, now.file, {...this.options(), ...now});
    if (this.row !== undefined) {
      this.graph.clearSelection();
      this.graph.setSelection(this.row);
    }
    this.tell();
  }

  /// [[step, [least, mean, most]], …]; what the first point stands for begins with the first step.
  rows() {
    const {mean, least, most} = this.values, rows = this.steps.map((step, i) => [step, mean[i] === null ? null : [least[i], mean[i], most[i]]]);
    this.ahead = this.first < this.steps[0] ? 1 : 0;
    if (this.ahead) rows.unshift([this.first, rows[0][1]]);
    return rows;
  }

  options() {
    return {
      labels: ['step', this.key], customBars: true, colors: [this.colour], fillAlpha: 0.4, strokeWidth: 1.6, pointSize: 2.5, legend: 'never',
      axisLabelFontSize: 11, axisTickSize: tick, rightGap: right, gridLineWidth: 1, axisLineWidth: 1,
      axes: {
        x: {axisLabelFormatter: (step) => (Number.isInteger(step) ? `step ${step.toLocaleString('en')}` : ''),
            axisLabelWidth: 90, pixelsPerLabel: 75, drawGrid: false},
        y: {axisLabelFormatter: (value) => this.tickText(value), axisLabelWidth: labels, labelsKMG2: this.binary},
      },
      highlightCallback: (event, x, points, row) => {
        this.row = row;
        this.tell();
      },
      unhighlightCallback: () => {
        this.row = undefined;
        this.tell();
      },
    };
  }

  /// Pixels of its width that there are for points: more could not be told apart, nor pointed at.
  columns() {
    return Math.max(1, Math.round(this.plot.clientWidth - labels - 2 * tick - right));
  }

  tell() {
    const {mean} = this.values, newest = mean.length - 1;
    if (this.row === undefined) this.output.textContent = `${this.text(mean[newest])} at step ${this.steps[newest]}`;
    else this.output.textContent = this.point(Math.min(newest, Math.max(0, this.row - this.ahead)));
  }

  /// What is pointed at, with the steps that it stands for.
  point(at) {
    const {mean, least, most} = this.values, from = at > 0 ? this.steps[at - 1] + 1 : this.first, until = this.steps[at];
    if (from === until) return `${this.text(mean[at])} at step ${until}`;
    return `${this.text(mean[at])} (${this.text(least[at])} to ${this.text(most[at])}), steps ${from}–${until}`;
  }
}
