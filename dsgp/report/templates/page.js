"use strict";
(() => {
  const specs = JSON.parse(document.getElementById("specs").textContent);
  const tip = document.body.appendChild(document.createElement("div"));
  tip.id = "tip";
  // Text only: names of columns and levels are never read as HTML.
  function show(names, event, value) {
    tip.replaceChildren();
    if (value === null || value === undefined || value === "") {
      tip.style.display = "none";
      return;
    }
    const table = tip.appendChild(document.createElement("table"));
    for (const [name, text] of Object.entries(Object(value) === value ? value : { "": value })) {
      const row = table.insertRow();
      row.insertCell().textContent = names[name] ?? name;
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
    const tooltip = (handler, event, item, value) => show(names, event, value);
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
