/** Cost: the economics of failure, with the numbers of `syntony cost`. */
import { Empty, Head, Panel } from "../ui";

export function Cost() {
  return <><Head title="Cost of failure" /><Panel title="Cost"><Empty what="This controller has no figures on cost." next={<>The command line has them: <code>syntony cost --gpus 1024</code>.</>} /></Panel></>;
}
