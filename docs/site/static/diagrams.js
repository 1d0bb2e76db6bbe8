// Draws the diagrams of a page in the colours of its theme, and again when the reader changes the theme.
// The smallest scale of a diagram: its text has 16 px.
const LEGIBLE = 0.75;

document.addEventListener("DOMContentLoaded", () => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const diagrams = [...document.querySelectorAll("pre.mermaid")].map((node) => ({ node, code: node.textContent }));
  let drawn = Promise.resolve();

  const theme = () => {
    const chosen = document.body.dataset.theme;
    return chosen === "dark" || (chosen !== "light" && dark.matches) ? "dark" : "default";
  };
  const draw = async () => {
    mermaid.initialize({ startOnLoad: false, theme: theme() });
    for (const { node, code } of diagrams) {
      node.removeAttribute("data-processed");
      node.textContent = code;
    }
    await mermaid.run({ nodes: diagrams.map(({ node }) => node) });
    // A diagram that is much wider than the page scrolls, so that its text stays legible.
    for (const svg of document.querySelectorAll("pre.mermaid svg")) {
      svg.style.minWidth = `${LEGIBLE * svg.viewBox.baseVal.width}px`;
    }
  };
  const redraw = () => {
    drawn = drawn.then(draw, draw);
  };
  new MutationObserver(redraw).observe(document.body, { attributes: true, attributeFilter: ["data-theme"] });
  dark.addEventListener("change", redraw);
  redraw();
});
