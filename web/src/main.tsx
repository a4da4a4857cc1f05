import { render } from "preact";
import { App } from "./app";
import "./design.css";
import { applyTheme } from "./theme";

applyTheme();
const place = document.getElementById("console");
if (place) render(<App />, place);
