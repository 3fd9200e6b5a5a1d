// The heat map of correlations: a canvas of cells, and a canvas above it for the cursor, the selection and search results.

const unpack = (text, size) => {
  // Correlations as 16-bit numbers, the lower triangle row by row.
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const full = new Float32Array(size * size);
  for (let i = 0, k = 0; i < size; i++) {
    full[i * size + i] = 1;
    for (let j = 0; j < i; j++, k += 2) full[i * size + j] = full[j * size + i] = view.getInt16(k, true) / 10000;
  }
  return full;
};

const rgb = (text) => {
  const hex = text.trim().slice(1);
  const long = hex.length === 3 ? [...hex].map((c) => c + c).join("") : hex;
  return [0, 2, 4].map((k) => parseInt(long.slice(k, k + 2), 16));
};

class RelationMap {
  constructor(place, cells, cursor, names, groups, relations) {
    Object.assign(this, { place, cells, cursor, names, groups, relations });
    this.size = names.length;
    this.order = names.map((_, t) => t);
    this.threshold = 0;
    this.zoom = 1;
    this.at = null; // [row, column] that is pointed at, as places in the order
    this.chosen = null; // a task
    this.found = new Set(); // tasks
    this.sorted = false; // whether the order goes by group
    this.forPrint = false;
  }

  value(t, s) { return this.relations[t * this.size + s]; }

  colours() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(name);
    if (this.forPrint) {
      return { paper: "#ffffff", ink: "#000000", soft: "#444444", accent: "#0b5cad", negative: rgb("#b2182b"), middle: rgb("#f4f4f2"),
        positive: rgb("#2166ac"), groups: this.palette(read) };
    }
    return { paper: read("--paper"), ink: read("--ink"), soft: read("--soft"), accent: read("--accent"), negative: rgb(read("--negative")),
      middle: rgb(read("--middle")), positive: rgb(read("--positive")), groups: this.palette(read) };
  }

  palette(read) { return Array.from({ length: 8 }, (_, g) => read(`--g${g}`)); }

  measure() {
    // Cells fill the width; names are written where a cell is high enough for a line of text.
    const width = Math.max(this.place.clientWidth, 120);
    const pen = this.cells.getContext("2d");
    pen.font = this.font(13);
    const longest = Math.min(Math.max(...this.names.slice(0, 400).map((name) => pen.measureText(name).width)) + 18, width * 0.36, 190);
    const bare = 12;
    const fit = (edge) => Math.min((width - edge - 4) / this.size, 60);
    let cell = fit(longest) * this.zoom;
    this.named = cell >= 11;
    if (!this.named) {
      cell = fit(bare) * this.zoom;
      this.named = cell >= 11;
    }
    const ratio = window.devicePixelRatio || 1;
    this.edge = this.named ? longest : bare;
    this.cell = Math.min(cell, (8000 / ratio - this.edge) / this.size);
    this.side = this.edge + this.cell * this.size + 2;
    for (const sheet of [this.cells, this.cursor]) {
      sheet.width = sheet.height = Math.round(this.side * ratio);
      sheet.style.width = sheet.style.height = `${this.side}px`;
      sheet.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
  }

  font(size) { return `${size}px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif`; }

  draw() {
    this.measure();
    const { size, order, cell, edge, side } = this;
    const pen = this.cells.getContext("2d");
    const tint = (this.tint = this.colours());
    pen.fillStyle = tint.paper;
    pen.fillRect(0, 0, side, side);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(this.picture(tint), edge, edge, cell * size, cell * size);
    if (cell >= 9) this.lines(pen, tint.paper, 1, Array.from({ length: size + 1 }, (_, k) => k));
    if (this.sorted) {
      const breaks = [];
      for (let k = 1; k < size; k++) if (this.groups[order[k]] !== this.groups[order[k - 1]]) breaks.push(k);
      if (breaks.length < size - 1) this.lines(pen, tint.soft, 1, breaks);
    }
    for (let k = 0; k < size; k++) {
      pen.fillStyle = tint.groups[this.groups[order[k]] % 8];
      pen.fillRect(edge - 7, edge + k * cell, 4, Math.max(cell, 0.5));
      pen.fillRect(edge + k * cell, edge - 7, Math.max(cell, 0.5), 4);
    }
    if (this.named) this.label(pen, tint);
    this.point();
  }

  picture(tint) {
    // One pixel for each cell, to be stretched.
    const { size, order, threshold } = this;
    const sheet = document.createElement("canvas");
    sheet.width = sheet.height = size;
    const pen = sheet.getContext("2d");
    const image = pen.createImageData(size, size);
    for (let i = 0, k = 0; i < size; i++) {
      for (let j = 0; j < size; j++, k += 4) {
        const value = this.value(order[i], order[j]);
        if (Math.abs(value) < threshold) continue;
        const weight = Math.abs(value);
        const end = value < 0 ? tint.negative : tint.positive;
        for (let c = 0; c < 3; c++) image.data[k + c] = tint.middle[c] + weight * (end[c] - tint.middle[c]);
        image.data[k + 3] = 255;
      }
    }
    pen.putImageData(image, 0, 0);
    return sheet;
  }

  lines(pen, colour, width, places) {
    const { cell, edge, size } = this;
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.beginPath();
    for (const k of places) {
      pen.moveTo(edge + k * cell, edge);
      pen.lineTo(edge + k * cell, edge + size * cell);
      pen.moveTo(edge, edge + k * cell);
      pen.lineTo(edge + size * cell, edge + k * cell);
    }
    pen.stroke();
  }

  label(pen, tint) {
    const { cell, edge, order, names } = this;
    pen.font = this.font(Math.min(13, Math.max(10, cell * 0.8)));
    pen.fillStyle = tint.ink;
    pen.textBaseline = "middle";
    const upright = names.every((name) => pen.measureText(name).width < cell - 2);
    order.forEach((t, k) => {
      const text = this.clip(pen, names[t], edge - 14);
      pen.textAlign = "right";
      pen.fillText(text, edge - 11, edge + (k + 0.5) * cell);
      pen.save();
      pen.translate(edge + (k + 0.5) * cell, edge - 11);
      if (upright) pen.translate(0, -6);
      else pen.rotate(-Math.PI / 2);
      pen.textAlign = upright ? "center" : "left";
      pen.fillText(text, 0, 0);
      pen.restore();
    });
  }

  clip(pen, text, room) {
    if (pen.measureText(text).width <= room) return text;
    const letters = [...text]; // whole characters, so that an emoji is never cut in two
    let low = 0, high = letters.length;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (pen.measureText(letters.slice(0, middle).join("") + "…").width <= room) low = middle; else high = middle - 1;
    }
    return letters.slice(0, low).join("") + "…";
  }

  point() {
    // What is found, chosen and pointed at, above the cells.
    const { cell, edge, size, order, tint } = this;
    const pen = this.cursor.getContext("2d");
    pen.clearRect(0, 0, this.side, this.side);
    const across = size * cell;
    const strip = (k, width) => {
      pen.lineWidth = width;
      pen.strokeRect(edge, edge + k * cell, across, cell);
      pen.strokeRect(edge + k * cell, edge, cell, across);
    };
    pen.strokeStyle = pen.fillStyle = tint.accent;
    order.forEach((t, k) => {
      if (!this.found.has(t) || this.found.size === size) return;
      pen.beginPath(); // an arrow head at the row and at the column
      const y = edge + (k + 0.5) * cell;
      pen.moveTo(edge, y);
      pen.lineTo(edge - 11, y - 5);
      pen.lineTo(edge - 11, y + 5);
      pen.moveTo(y, edge);
      pen.lineTo(y - 5, edge - 11);
      pen.lineTo(y + 5, edge - 11);
      pen.fill();
      if (this.found.size <= 3) strip(k, 1);
    });
    if (this.chosen !== null) strip(order.indexOf(this.chosen), 2);
    if (this.at) {
      const [i, j] = this.at;
      pen.globalAlpha = 0.55;
      pen.strokeStyle = tint.ink;
      pen.lineWidth = 1;
      pen.strokeRect(edge, edge + i * cell, across, cell);
      pen.strokeRect(edge + j * cell, edge, cell, across);
      pen.globalAlpha = 1;
      pen.lineWidth = 2;
      const grow = Math.max(0, (7 - cell) / 2);
      pen.strokeRect(edge + j * cell - grow, edge + i * cell - grow, cell + 2 * grow, cell + 2 * grow);
    }
  }

  cellAt(event) {
    // The cell under the pointer; beside the cells, on the names, that of the task itself.
    const box = this.cursor.getBoundingClientRect();
    const scale = this.side / box.width;
    const place = (length) => Math.floor((length * scale - this.edge) / this.cell);
    let [j, i] = [place(event.clientX - box.left), place(event.clientY - box.top)];
    if (j < 0 && i < 0) return null;
    if (j < 0) j = i;
    if (i < 0) i = j;
    return i < this.size && j < this.size ? [i, j] : null;
  }

  follow() {
    // Scroll a large map along with the keyboard.
    if (!this.at) return;
    const [i, j] = this.at.map((k) => this.edge + k * this.cell);
    const { place } = this;
    if (j < place.scrollLeft + this.edge || j + this.cell > place.scrollLeft + place.clientWidth) place.scrollLeft = j - place.clientWidth / 2;
    if (i < place.scrollTop + this.edge || i + this.cell > place.scrollTop + place.clientHeight) place.scrollTop = i - place.clientHeight / 2;
  }
}
