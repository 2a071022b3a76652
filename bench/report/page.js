// Draws what page.cpp has put into the data. Texts come from there, and become text, never markup.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const root = document.documentElement;
  const charts = [];

  // make("p", {class: "soft"}, "text", child…)
  const make = (tag, attributes, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const sentence = (text) =>
    text.startsWith("!") ? make("p", {class: "warning"}, text.slice(1)) : make("p", {}, text);
  const notes = (list) => make("ul", {class: "notes"}, ...list.map((one) => make("li", {class: one.tone}, one.text)));
  const say = (text, shown) => {
    byId("said").textContent = text;
    byId("said").classList.toggle("shown", shown);
    if (shown) setTimeout(() => byId("said").classList.remove("shown"), 1800);
  };

  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {  // not allowed here: by the older way
      const area = make("textarea", {}, text);
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    say("Copied: " + text, true);
  };
  const copyButton = (command, label) => {
    const button = make("button", {type: "button", class: "copy", title: command, "aria-label": "Copy the command: " + command}, label);
    button.addEventListener("click", () => copy(command));
    return button;
  };
  const commandLine = (command) =>
    make("div", {class: "command"}, make("code", {tabindex: "0"}, command), copyButton(command, "Copy"));

  // ---- tables -------------------------------------------------------------------------------------
  // Columns: [title, "n" for numbers, what of the row].
  const table = (columns, rows, rowClass) => {
    const head = make("tr", {}, ...columns.map(([title, kind]) => make("th", {class: kind, scope: "col"}, title)));
    const body = rows.map((row) =>
      make("tr", {class: rowClass(row)}, ...columns.map(([, kind, of]) => make("td", {class: kind}, of(row)))));
    const scroll = make("div", {class: "scroll", tabindex: "0"}, make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
    return scroll;
  };
  const figureColumns = [
    ["operation", null, (row) => row.op],
    ["on", null, (row) => row.on],
    ["bytes", "n", (row) => row.bytes],
    ["threads", "n", (row) => String(row.threads)],
    ["median", "n", (row) => row.figure],
    ["95 % interval", "n", (row) => make("span", {}, row.interval, make("br", {}), make("span", {class: "soft"}, row.noise))],
    ["repeats", "n", (row) => String(row.repeats)],
    ["P, ns", "n", (row) => row.p],
    ["beside others", "wide", (row) => notes(row.notes)],
    ["repeat", null, (row) => copyButton(row.command, "Copy")],
  ];
  // Made when it is opened: a session has hundreds of figures.
  const foldedTable = (title, makeTable) => {
    const details = make("details", {}, make("summary", {}, title));
    details.addEventListener("toggle", () => details.childElementCount > 1 || details.append(makeTable()), {once: true});
    return details;
  };

  // ---- charts -------------------------------------------------------------------------------------
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const bytes = (value) => value >= 1048576 ? value / 1048576 + " MiB" : value >= 1024 ? value / 1024 + " KiB" : String(value);
  const short = (value) => value >= 1e6 ? value / 1e6 + "M" : value >= 1e3 ? value / 1e3 + "k" : String(value);

  // The 95 % intervals, over bars and points.
  const whiskers = {
    id: "whiskers",
    afterDatasetsDraw(chart) {
      const {ctx, scales: {y}, chartArea} = chart;
      ctx.save();
      ctx.beginPath();
      ctx.rect(chartArea.left, chartArea.top, chartArea.right - chartArea.left, chartArea.bottom - chartArea.top);
      ctx.clip();
      chart.data.datasets.forEach((set, i) => {
        if (!chart.isDatasetVisible(i)) return;
        ctx.strokeStyle = chart.config.type === "bar" ? colour("--ink") : set.borderColor;
        ctx.globalAlpha = chart.config.type === "bar" ? 0.65 : 1;
        ctx.lineWidth = 1.3;
        chart.getDatasetMeta(i).data.forEach((element, j) => {
          const point = set.data[j];
          if (!point || !(point.high > point.low)) return;
          const low = point.low > 0 || y.type === "linear" ? y.getPixelForValue(point.low) : chartArea.bottom;
          const high = y.getPixelForValue(point.high);
          const cap = Math.min(4, (element.width || 8) / 2);
          ctx.beginPath();
          ctx.moveTo(element.x, low);
          ctx.lineTo(element.x, high);
          for (const end of [low, high]) {
            ctx.moveTo(element.x - cap, end);
            ctx.lineTo(element.x + cap, end);
          }
          ctx.stroke();
        });
      });
      ctx.restore();
    },
  };

  const hoverLines = (figure) => [`${figure.figure}, 95 % interval ${figure.interval}`, `${figure.noise}; repeats: ${figure.repeats}`, ...figure.notes.map((note) => note.text)];

  const dataset = (series, chart) => ({
    label: series.name,
    data: series.points.map((point) => ({...data.figures[point.figure], x: chart.lines ? point.x : chart.groups[point.x]})),
    hidden: series.hidden,
    borderColor: series.colour + (series.faint ? "99" : ""),
    backgroundColor: series.colour + (chart.lines ? "" : series.faint ? "44" : series.dashed ? "88" : "d9"),
    borderWidth: chart.lines ? 2 : series.dashed ? 1.5 : 0,
    borderDash: series.dashed ? [6, 4] : [],
    borderRadius: 3,
    pointRadius: 3,
    pointHoverRadius: 6,
    maxBarThickness: 42,
  });

  const options = (chart) => {
    const ink = colour("--ink"), soft = colour("--soft"), line = colour("--line");
    const values = chart.series.flatMap((series) => series.points.flatMap(({figure}) => [data.figures[figure].y, data.figures[figure].low, data.figures[figure].high])).filter((one) => one > 0);
    const sizes = [...new Set(chart.series.flatMap((series) => series.points.map((point) => point.x)))].sort((a, b) => a - b);
    const ticks = {color: soft, font: {size: 11}};
    // An axis of two decades and more has lines at 1, 10, 100; a shorter one at 1, 2, 5, 10 too.
    const bottom = Math.min(...values) / 1.15, top = Math.max(...values) * 1.15;
    const lines = [];
    for (let decade = Math.floor(Math.log10(bottom)); decade <= Math.min(Math.log10(top), 308); ++decade) {
      for (const step of top / bottom > 150 ? [1] : [1, 2, 5]) lines.push(Number(step + "e" + decade));
    }
    return {
      animation: false,
      maintainAspectRatio: false,
      interaction: {mode: "nearest", intersect: false},
      scales: {
        x: chart.lines
          ? {type: "logarithmic", min: sizes[0] / 1.25, max: sizes[sizes.length - 1] * 1.25, grid: {color: line, borderColor: line}, title: {display: true, text: "bytes", color: soft},
             ticks: {...ticks, callback: bytes, maxRotation: 0, autoSkipPadding: 10},
             afterBuildTicks: (axis) => { axis.ticks = sizes.map((value) => ({value})); }}
          : {grid: {display: false, borderColor: line}, ticks: {...ticks, maxRotation: 60}},
        y: {type: chart.logarithmic ? "logarithmic" : "linear", beginAtZero: !chart.logarithmic, grid: {color: line, borderColor: line},
            ...(chart.logarithmic ? {min: bottom, max: top, afterBuildTicks: (axis) => {
              axis.ticks = lines.filter((value) => value >= bottom && value <= top).map((value) => ({value}));
            }} : {}),
            ticks: {...ticks, callback: short}},
      },
      plugins: {
        legend: {position: "bottom", labels: {color: ink, boxWidth: 14, boxHeight: 8, padding: 10, font: {size: 12}, usePointStyle: chart.lines, pointStyle: "line", pointStyleWidth: 26}},
        tooltip: {
          backgroundColor: colour("--paper"), borderColor: soft, borderWidth: 1, titleColor: ink, bodyColor: ink, padding: 10, displayColors: false,
          titleFont: {size: 12.5}, bodyFont: {size: 12},
          callbacks: {
            title: ([item]) => item.dataset.label + ", " + (chart.lines ? bytes(item.raw.x) + (item.raw.x < 1024 ? " bytes" : "") : item.raw.x),
            label: (item) => hoverLines(item.raw),
          },
        },
      },
    };
  };

  // The arrow keys step from point to point, and what is hovered over is said.
  const byKeys = (canvas, drawn) => {
    let set = 0, index = -1;
    canvas.addEventListener("keydown", (event) => {
      const step = {ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0]}[event.key];
      if (!step) return;
      event.preventDefault();
      const visible = drawn.data.datasets.map((_, i) => i).filter((i) => drawn.isDatasetVisible(i));
      if (!visible.length) return;
      set = (set + step[0] + visible.length) % visible.length;
      const points = drawn.data.datasets[visible[set]].data;
      index = Math.min(Math.max(index + step[1], 0), points.length - 1);
      const active = [{datasetIndex: visible[set], index}];
      drawn.setActiveElements(active);
      drawn.tooltip.setActiveElements(active, {x: 0, y: 0});
      drawn.update();
      say(drawn.data.datasets[visible[set]].label + ": " + hoverLines(points[index]).join("; "), false);
    });
    canvas.addEventListener("blur", () => {
      drawn.setActiveElements([]);
      drawn.tooltip.setActiveElements([], {x: 0, y: 0});
      drawn.update();
    });
  };

  const figure = (chart) => {
    const canvas = make("canvas", {role: "img", tabindex: "0", "aria-label": `${chart.name}: ${chart.unit}, of ${chart.series.map((one) => one.name).join("; ")}. The figures are in the table below.`});
    const plot = make("div", {class: "plot"}, canvas);
    const unit = (chart.meaning ? chart.meaning + " · " : "") + chart.unit + (chart.logarithmic ? " · logarithmic" : "");
    const box = make("figure", {}, make("h3", {}, chart.name), make("div", {class: "unit"}, unit), plot, commandLine(chart.command));
    if (typeof Chart === "undefined") {
      plot.replaceWith(make("p", {class: "warning"}, "This heddle was built without Chart.js (Debian: libjs-chart.js), so that this chart is missing. The figures are in the table below."));
      return box;
    }
    charts.push(() => {
      const config = {type: chart.lines ? "line" : "bar", data: {datasets: chart.series.map((one) => dataset(one, chart))}, options: options(chart), plugins: [whiskers]};
      if (!chart.lines) config.data.labels = chart.groups;
      const drawn = new Chart(canvas, config);
      byKeys(canvas, drawn);
      return () => {
        drawn.options = options(chart);
        drawn.update();
      };
    });
    return box;
  };

  // ---- the page -----------------------------------------------------------------------------------
  const drawRun = (run) => {
    const [counts, ...behind] = run.verdict;
    const box = make("div", {class: "box run"}, make("p", {}, make("b", {}, run.name), " · ", make("span", {class: "soft"}, run.where)),
      ...run.trust.map(sentence), make("p", {}, counts));
    if (behind.length) {
      box.append(make("details", {class: "behind"}, make("summary", {}, `Where Heddle is behind (${behind.length})`),
        make("ul", {}, ...behind.map((one) => make("li", {}, one)))));
    }
    box.append(commandLine(run.command));
    return box;
  };

  const drawComparison = (one) => {
    const columns = [["figure", null, (row) => row.figure], ["of", null, (row) => row.on], [one.before, "n", (row) => row.before],
      [one.after, "n", (row) => row.after], ["change", null, (row) => make("span", {class: row.tone}, row.words)]];
    const first = one.rows.filter((row) => row.beyond).slice(0, 12);
    const box = make("section", {class: "comparison"}, make("h2", {}, `${one.after} beside ${one.before}`), ...one.summary.map(sentence));
    if (first.length) box.append(table(columns, first, () => null));
    box.append(foldedTable(`All ${one.rows.length} figures of both`, () => table(columns, one.rows, () => null)));
    return box;
  };

  const drawSection = (section) => make("section", {id: section.name}, make("h2", {}, section.name), make("div", {class: "soft"}, section.meaning),
    make("div", {class: "charts"}, ...section.charts.map(figure)),
    foldedTable(`${section.name}: ${section.rows.length} figures as a table`, () => table(figureColumns, section.rows.map((index) => data.figures[index]), (row) => row.ours ? "ours" : null)));

  const main = data.runs[data.main];
  byId("answer").textContent = main.answer[0];
  byId("reasons").append(...main.answer.slice(1).map((one) => make("p", {class: "soft"}, one)), ...data.runs.map(drawRun));
  byId("cards").append(...main.cards.map((card) => make("div", {class: "card"}, make("div", {class: "soft"}, card.what),
    make("div", {class: "big"}, card.figure + " ", make("small", {}, card.unit)), make("div", {class: "soft"}, card.noise), notes(card.notes))));
  byId("contents").append(...data.sections.map((one) => make("a", {href: "#" + one.name}, one.name)));
  byId("comparisons").append(...data.comparisons.map(drawComparison));
  byId("names").querySelector("dl").append(...data.names.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]));
  byId("names").hidden = data.names.length === 0;

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const redraws = [];
  const setTheme = (theme) => {
    root.dataset.theme = theme;
    redraws.forEach((redraw) => redraw());
  };
  setTheme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
  byId("theme").addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));
  byId("sections").append(...data.sections.map(drawSection));
  for (const draw of charts) redraws.push(draw());
})();
