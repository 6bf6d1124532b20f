// Small charts over time: a dot for each moment at which something was measured.

const shownMinutes = 10;

class Chart {
  // `say` makes a text of a value, `most` is the least upper end of the scale.
  constructor(id, say, most) {
    Object.assign(this, {say, most, points: []});
    const figure = document.getElementById(id);
    this.output = figure.querySelector('output');
    this.svg = svgElement('svg', {role: 'img', 'aria-label': figure.textContent});
    figure.append(this.svg);
    new ResizeObserver(() => this.draw()).observe(figure);
    setInterval(() => this.draw(), 5000);
  }

  add(value, time = Date.now()) {
    this.points.push({time, value});
    this.draw();
  }

  draw() {
    const now = Date.now();
    this.points = this.points.filter(({time}) => time > now - shownMinutes * 60000);
    const {clientWidth: width, clientHeight: height} = this.svg;
    if (width === 0) return;
    const last = this.points[this.points.length - 1];
    this.output.textContent = last ? this.say(last.value) : '';
    const since = Math.min(now - 60000, this.points[0]?.time ?? now);
    const top = Math.max(this.most, ...this.points.map(({value}) => value));
    const x = (time) => 4 + ((width - 8) * (time - since)) / (now - since);
    const y = (value) => height - 15 - (height - 32) * (value / top);
    const radius = this.points.length < 60 ? 2.5 : 1.2;
    const places = this.points.map(({time, value}) => [x(time), y(value)]);
    this.svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    this.svg.replaceChildren(
      ...[0, top].map((value) => svgElement('line',
        {class: 'rule', x1: 4, x2: width - 4, y1: y(value), y2: y(value)})),
      svgText(4, y(top) - 4, this.say(top)),
      svgText(4, height - 2, age(now - since)),
      svgText(width - 4, height - 2, 'now', 'end'),
      svgElement('polyline', {class: 'curve', points: places.map((at) => at.join()).join(' ')}),
      svgText(width / 2, height / 2 + 4, last ? '' : 'no request yet', 'middle'),
      ...places.map(([cx, cy]) => svgElement('circle', {cx, cy, r: radius})),
    );
  }
}

function age(milliseconds) {
  const minutes = milliseconds / 60000;
  return minutes < 1.5 ? '1 minute ago' : `${Math.round(minutes)} minutes ago`;
}

function svgElement(name, attributes) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function svgText(x, y, text, anchor = 'start') {
  const element = svgElement('text', {x, y, 'text-anchor': anchor});
  element.textContent = text;
  return element;
}

function inMilliseconds(seconds) {
  const milliseconds = seconds * 1000;
  return `${milliseconds < 10 ? milliseconds.toFixed(1) : Math.round(milliseconds)} ms`;
}
