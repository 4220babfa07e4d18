import { isReadOnly } from "../state/session";
import "../style/manage.css";
import { Cards } from "./manage/Cards";
import { Clean } from "./manage/Clean";
import { Pauses } from "./manage/Pauses";

/** What is done to the queue and the cards as a whole. */
export default function Manage() {
  if (isReadOnly.value) return <p class="panel">This page is read-only: it can change nothing.</p>;
  return (
    <div class="manage">
      <h1>Manage</h1>
      <Pauses />
      <Cards />
      <Clean />
    </div>
  );
}
