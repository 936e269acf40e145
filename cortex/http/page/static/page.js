"use strict";
/* Buttons that decide take effect only after a quiet moment; the remaining time ticks. The page also works without scripts. */
(() => {
  const ARM_MS = 400;
  let armsAt = Infinity;
  let timer = 0;

  const buttons = () => document.querySelectorAll("[data-arms]");

  function disarm() {
    document.documentElement.classList.add("arming");
    for (const button of buttons()) button.setAttribute("aria-disabled", "true");
    armsAt = performance.now() + ARM_MS;
    clearTimeout(timer);
    timer = setTimeout(arm, ARM_MS);
  }

  function arm() {
    if (document.hidden) return;
    armsAt = 0;
    document.documentElement.classList.remove("arming");
    for (const button of buttons()) button.removeAttribute("aria-disabled");
  }

  // Ignore presses from before the page could be read: they were not meant for it.
  document.addEventListener("submit", (event) => {
    const button = event.submitter;
    if (button && button.dataset.arms !== undefined && performance.now() < armsAt) event.preventDefault();
  }, true);
  document.addEventListener("visibilitychange", disarm);
  // A page from the browser's cache may be outdated.
  addEventListener("pageshow", (event) => (event.persisted ? location.reload() : disarm()));

  function words(seconds) {
    const two = (number) => String(number).padStart(2, "0");
    const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60), days = Math.floor(hours / 24);
    if (days) return `${days} d ${hours % 24} h`;
    if (hours) return `${hours} h ${two(minutes % 60)} min`;
    return minutes ? `${minutes} min ${two(seconds % 60)} s` : `${seconds} s`;
  }

  // Counts down the remaining time from the server, independent of the local clock.
  function count() {
    const shown = document.querySelectorAll("[data-left-s]"), status = document.getElementById("left-status");
    if (!shown.length) return;
    const began = performance.now(), whole = Number(shown[0].dataset.leftS);
    let minute = Math.ceil(whole / 60);
    const tick = setInterval(() => {
      const left = Math.max(0, whole - Math.floor((performance.now() - began) / 1000));
      for (const each of shown) each.textContent = words(left);
      if (Math.ceil(left / 60) !== minute) {
        minute = Math.ceil(left / 60);
        status.textContent = left ? `${words(left)} left` : "Expired: it can no longer be decided.";
      }
      if (!left) {
        clearInterval(tick);
        document.documentElement.classList.add("over");
        status.classList.remove("sr");
      }
    }, 1000);
  }

  disarm();
  addEventListener("DOMContentLoaded", () => { disarm(); count(); });
})();
