"use strict";
(() => {
  const specs = JSON.parse(document.getElementById("specs").textContent);
  const tip = document.body.appendChild(document.createElement("div"));
  tip.id = "tip";
  // Text only: names of columns and levels are never read as HTML.
  function show(rows, event) {
    tip.replaceChildren();
    if (!rows.length) {
      tip.style.display = "none";
      return;
    }
    const table = tip.appendChild(document.createElement("table"));
    for (const [name, text] of rows) {
      const row = table.insertRow();
      row.insertCell().textContent = name;
      row.insertCell().textContent = text;
    }
    tip.style.display = "block";
    const x = event.pageX + 14, right = window.scrollX + document.documentElement.clientWidth;
    tip.style.left = Math.max(4, Math.min(x, right - tip.offsetWidth - 6)) + "px";
    tip.style.top = event.pageY + 14 + "px";
  }
  const drawn = new Map();
  function draw(figure) {
    const spec = JSON.parse(JSON.stringify(specs[figure.id]));
    spec.width = Math.floor(figure.clientWidth);
    const old = drawn.get(figure.id);
    if (old && old.width === spec.width) return;
    const state = { width: spec.width, view: null };
    drawn.set(figure.id, state);
    const place = figure.querySelector(".live");
    const names = spec.usermeta.names;
    delete spec.usermeta;
    const tooltip = (handler, event, item, value) => {
      const blank = value === null || value === undefined || value === "";
      const pairs = blank ? [] : Object.entries(Object(value) === value ? value : { "": value });
      show(pairs.map(([name, text]) => [names[name] ?? name, text]), event);
    };
    vegaEmbed(place, spec, { actions: false, renderer: "svg", tooltip }).then((result) => {
      if (old && old.view) old.view.finalize();
      state.view = result.view;
      figure.classList.add("drawn");
    }).catch((error) => console.error(figure.id, error));
  }
  const figures = document.querySelectorAll(".chart");
  // A chart comes to life when it is about to be seen; before and in print it is a picture.
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
  }, { rootMargin: "200px" });
  figures.forEach((figure) => seen.observe(figure));
  let waiting = 0;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (matchMedia("print").matches) return;
      figures.forEach((figure) => { if (drawn.has(figure.id)) draw(figure); });
    }, 200);
  });
  // Maps are pictures; their numbers are kept as integers of 16 bits, the largest of which is none.
  const numbers = JSON.parse(document.getElementById("maps-numbers")?.textContent ?? '{"maps": {}}');
  const unpacked = new Map();
  function valueAt(key, index) {
    const { low, step, digits, codes } = numbers.arrays[key];
    if (!unpacked.has(key)) {
      const bytes = Uint8Array.from(atob(codes), (letter) => letter.charCodeAt(0));
      unpacked.set(key, new DataView(bytes.buffer));
    }
    const code = unpacked.get(key).getUint16(2 * index, true);
    return code === 65535 ? "–" : String(Number((low + step * code).toPrecision(digits))).replace("-", "−");
  }
  function cellAt(edges, backwards, share) {
    let cell = 0;
    while (cell < edges.length - 2 && share >= edges[cell + 1]) cell += 1;
    return backwards ? edges.length - 2 - cell : cell;
  }
  for (const [key, map] of Object.entries(numbers.maps)) {
    const figure = document.getElementById(key);
    const image = figure.querySelector("img");
    const point = (event) => {
      const box = image.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width - map.left) / (map.right - map.left);
      const down = ((event.clientY - box.top) / box.height - map.top) / (map.bottom - map.top);
      if (x < 0 || x > 1 || down < 0 || down > 1) return show([], event);
      const column = cellAt(map.x, map.x_backwards, x);
      const row = cellAt(map.y, map.y_backwards, map.up ? 1 - down : down);
      const index = row * (map.x.length - 1) + column;
      show([
        [map.dims[0], map.y_names[row]], [map.dims[1], map.x_names[column]],
        ...map.rows.map(([name, array]) => [name, valueAt(array, index)]),
      ], event);
    };
    figure.addEventListener("pointermove", point);
    figure.addEventListener("pointerdown", point);
    figure.addEventListener("pointerleave", (event) => show([], event));
  }
  function find(input, items, nameOf) {
    const wanted = input.value.trim().toLowerCase();
    for (const item of items) item.hidden = !nameOf(item).toLowerCase().includes(wanted);
  }
  for (const input of document.querySelectorAll(".find")) {
    const cards = input.closest("section").querySelectorAll(".card.term");
    input.addEventListener("input", () => find(input, cards, (card) => card.dataset.name));
  }
  for (const input of document.querySelectorAll(".find-level")) {
    const rows = input.closest("details").querySelectorAll("tbody tr");
    input.addEventListener("input", () => find(input, rows, (row) => row.cells[0].textContent));
  }
  document.documentElement.dataset.ready = "true";
})();
