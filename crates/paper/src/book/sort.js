// A click on the title of a column sorts the table by it, a second one turns the order round. Tables stand without it.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = row => row.cells[column].dataset.v ?? row.cells[column].textContent;
      const empty = text => text === "" || text === "–";
      const body = table.tBodies[0];
      const order = (a, b) => {
        const [x, y] = [value(a), value(b)];
        if (empty(x) || empty(y)) return empty(x) - empty(y);
        const [m, n] = [Number(x), Number(y)];
        return (up ? 1 : -1) * (Number.isFinite(m) && Number.isFinite(n) ? m - n : x.localeCompare(y));
      };
      body.append(...[...body.rows].sort(order));
    });
  });
}
