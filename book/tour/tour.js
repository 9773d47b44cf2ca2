// The tour through the page "Try it": a card at the bottom of the window, which turns the page to one stop after the other.
// What the stops show, ask and answer is in stops.js. Without these two files, the page has no tour.

function startTour({ find, element, addresses, visit, state, keep, uncover, isWorking }) {
  let at, last = 1; // the stop, from 1, or undefined: no tour; the one where it was left
  let before; // what the page showed when the tour began
  const text = element("div"), heading = element("h2", { tabIndex: -1 });
  const [back, next, there, leave] = ["Back", "Next", "Go to it", "Leave"].map((name) =>
    element("button", { type: "button" }, name));
  const keys = element("span", { className: "help hint" }, "← and → turn the stops. Escape comes back here, and leaves.");
  const moves = element("div", { className: "turns", role: "group", ariaLabel: "Stops" }, back, next, there, leave, keys);
  const card = element("section", { className: "tour", ariaLabel: "Tour", hidden: true }, heading, text, moves);
  const begin = element("button", { type: "button" }), home = element("button", { type: "button", hidden: true });
  const said = element("span", { className: "help" }, `${TOUR.length} stops, some ten minutes: a sentence is followed through the model.`);
  const invitation = element("p", { className: "invitation" }, begin, " ", home, " ", said);

  /** Text with *what stands on the page* and [links](#address) as nodes. */
  function nodes(marked) {
    return marked.split(/(\[.*?\]\(#.*?\)|\*.*?\*)/).map((part) => {
      const [, label, address] = part.match(/^\[(.*)\]\((#.*)\)$/) ?? [];
      if (label) return element("a", { href: addresses.write({ ...addresses.read(address).state, tour: at }) }, ...nodes(label));
      return /^\*.+\*$/.test(part) ? element("i", {}, part.slice(1, -1)) : part;
    });
  }

  function fillCard() {
    const { question, claim, answer } = TOUR[at - 1];
    heading.replaceChildren(element("small", {}, `Stop ${at} of ${TOUR.length} `), question);
    const fold = element("details", {}, element("summary", {}, "The answer"), element("p", {}, ...nodes(answer)));
    fold.ontoggle = () => fold.open && (card.scrollTop = fold.offsetTop - 8); // on a phone, it opens below the card's edge
    text.replaceChildren(element("p", {}, ...nodes(claim)), fold);
    back.setAttribute("aria-disabled", at === 1);
    next.setAttribute("aria-disabled", at === TOUR.length);
    card.scrollTop = 0;
    heading.focus({ preventScroll: true });
  }

  /** The card of a stop, or none: what the page shows is somebody else's business. */
  function show(stop) {
    if (stop === at) return;
    at = stop;
    card.hidden = !stop;
    invitation.hidden = Boolean(stop);
    if (!stop) return;
    last = stop;
    fillCard();
  }

  function turn(stop, isReturn = false) {
    if (!TOUR[stop - 1]) return;
    const { state: wanted } = addresses.read(TOUR[stop - 1].address);
    visit({ state: { ...wanted, tour: stop } }, isReturn);
  }

  /** Where on the page a stop wants its reader to look, if not at the top of what is open: a list of one or none. */
  function sight() {
    const { sight: place } = TOUR[at - 1] ?? {}, viewer = find(".attention-viewer")?.shadowRoot;
    return place && [find(place) ?? viewer?.querySelector(place)].filter(Boolean);
  }

  function end() {
    show();
    begin.textContent = "Go on with the tour";
    home.textContent = `Back to “${before?.de}”`;
    home.hidden = !before;
    begin.focus();
    keep();
  }

  begin.onclick = () => {
    const field = find("textarea"), de = field.value, isOwn = de !== field.defaultValue && !TOUR.some((stop) =>
      addresses.read(stop.address).state.de === de);
    if (isOwn) before = state()?.de === de ? { ...state(), tour: undefined } : { de };
    turn(last);
  };
  home.onclick = () => {
    home.hidden = true;
    visit({ state: before });
    before = undefined;
    find("textarea").focus();
  };
  back.onclick = () => turn(at - 1);
  next.onclick = () => turn(at + 1);
  leave.onclick = end;
  there.onclick = () => {
    const view = find(".view:not([hidden])"), panel = view.querySelector(".panel");
    const place = find(".results").hidden ? find("textarea") : panel?.checkVisibility() ? panel : view;
    if (place.tabIndex < 0) place.tabIndex = -1;
    place.focus({ preventScroll: true });
    uncover(sight()?.[0] ?? place);
  };
  card.onkeydown = ({ key, altKey, ctrlKey, metaKey }) => {
    if (altKey || ctrlKey || metaKey) return;
    if (key === "ArrowLeft") turn(at - 1);
    if (key === "ArrowRight") turn(at + 1);
  };
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.isComposing || !at || isWorking()) return;
    const { activeElement: focused } = document;
    if (card.contains(focused) || focused === document.body) end();
    else if (focused.closest("#translator")) heading.focus();
  });
  begin.textContent = "Take the tour";
  find("form").after(invitation);
  document.querySelector("#translator").append(card);
  return {
    stop: () => at,
    show,
    turn,
    sight,
  };
}
