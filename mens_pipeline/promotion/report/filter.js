// The page works without this script, which only hides requests that do not contain the typed text.
const form = document.getElementById("filter");
const tasks = [...document.querySelectorAll(".task")];
const groups = [...document.querySelectorAll(".group")];
const show = () => {
  const wanted = form.querySelector("input").value.trim().toLowerCase();
  for (const task of tasks) task.hidden = !task.textContent.toLowerCase().includes(wanted);
  for (const group of groups) group.hidden = Boolean(wanted) && !group.querySelector(".task:not([hidden])");
  const shown = tasks.filter((task) => !task.hidden).length;
  form.querySelector("output").textContent = wanted ? `${shown} of ${tasks.length} requests` : "";
};
form.hidden = false;
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", show);
