import { mount } from "svelte";

import App from "./App.svelte";
import { route } from "./lib/route.svelte";
import { takeToken } from "./lib/source";
import { chosen } from "./lib/theme.svelte";
import "./style/base.css";
import "./style/parts.css";

takeToken();
chosen.restore();
route.read();
addEventListener("hashchange", () => {
  takeToken();
  route.read();
});
const place = document.getElementById("app");
if (place) mount(App, { target: place });
