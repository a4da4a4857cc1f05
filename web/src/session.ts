/** Who is logged in, for views that ask what may be done. */
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Session } from "./api";

export const SessionContext = createContext<Session | null>(null);
export const useSession = () => useContext(SessionContext);
export const useOperator = () => useSession()?.role === "operator";

/** Whose name an order carries beside the session's; the server adds what it knows. */
export const useBy = () => useSession()?.name ?? "";
