// The parts of ECharts that advisor/static/advisor/charts.js uses. Everything else stays out of the built file.
import { CustomChart, LineChart, ScatterChart } from "echarts/charts";
import { AriaComponent, DataZoomInsideComponent, GridComponent, MarkLineComponent, TooltipComponent } from "echarts/components";
import { init, use } from "echarts/core";
import { LabelLayout } from "echarts/features";
import { SVGRenderer } from "echarts/renderers";

use([
  CustomChart, LineChart, ScatterChart, AriaComponent, DataZoomInsideComponent, GridComponent, MarkLineComponent,
  TooltipComponent, LabelLayout, SVGRenderer,
]);

export { init };
