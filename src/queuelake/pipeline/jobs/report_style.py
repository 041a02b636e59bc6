"""The style sheet of the report: one page, light and dark, also on paper."""

STYLE = """
:root { color-scheme: light dark; --page: #f5f6f8; --card: #ffffff; --ink: #1b2430; --soft: #5c6875;
  --rule: #e2e6ea; --s0: #2468c9; --s1: #e08214; --s2: #25936d; --s3: #c03a5b; --s4: #7a52c0;
  --s5: #0c8fa6; --s6: #8a6a12; --s7: #6b7785; --bad: #b3263e; }
@media (prefers-color-scheme: dark) { :root { --page: #11161c; --card: #1a2129; --ink: #e6ebf0;
  --soft: #98a4b1; --rule: #2b343e; --s0: #6aa5f4; --s1: #f0a24a; --s2: #53c39b; --s3: #ee7a96;
  --s4: #b196ee; --s5: #4fc4d8; --s6: #d3b04c; --s7: #a3afbb; --bad: #ff8095; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 36px 24px 60px; }
header { display: flex; flex-wrap: wrap; justify-content: space-between; align-items: end;
  gap: 6px 24px; margin-bottom: 24px; }
h1 { font-size: 27px; letter-spacing: -0.01em; margin: 0; line-height: 1.25; }
h2 { font-size: 16px; margin: 0; }
.note { color: var(--soft); font-size: 13px; margin: 2px 0 12px; }
header .note { margin: 0; }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; }
.figures { display: grid; grid-template-columns: repeat(4, 1fr); gap: 14px;
  margin-bottom: 18px; }
.figures .card { padding: 14px 16px 12px; }
.figures .label { color: var(--soft); font-size: 13px; }
.figures .figure { font-size: 25px; font-weight: 600; font-variant-numeric: tabular-nums;
  letter-spacing: -0.01em; line-height: 1.3; }
.figures .figure small { font-size: 14px; font-weight: 400; color: var(--soft); }
.figures .bad .figure { color: var(--bad); }
@media (max-width: 760px) { .figures { grid-template-columns: repeat(2, 1fr); } }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(420px, 100%), 1fr));
  gap: 10px 36px; align-items: start; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(480px, 100%), 1fr));
  gap: 18px; margin-bottom: 18px; }
section.card { padding: 18px 20px 14px; }
section.card + section.card.wide, .charts + section.card { margin-bottom: 18px; }
svg { width: 100%; height: auto; display: block; overflow: visible; }
svg text { font-size: 12px; fill: var(--soft); font-variant-numeric: tabular-nums; }
svg .tick.y, svg .name { text-anchor: end; }
svg .tick.x { text-anchor: middle; }
svg .name, svg .value { fill: var(--ink); font-size: 13px; }
svg .grid { stroke: var(--rule); }
svg .base { stroke: var(--soft); stroke-opacity: 0.55; }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
svg .area { fill: var(--s0); fill-opacity: 0.12; }
svg .hover { fill: var(--ink); fill-opacity: 0; }
svg .hover:hover { fill-opacity: 0.06; }
.line.s0 { stroke: var(--s0); } .line.s1 { stroke: var(--s1); } .line.s2 { stroke: var(--s2); }
.line.s3 { stroke: var(--s3); } .line.s4 { stroke: var(--s4); } .line.s5 { stroke: var(--s5); }
.line.s6 { stroke: var(--s6); } .line.s7 { stroke: var(--s7); }
.fill.s0 { fill: var(--s0); } .fill.s1 { fill: var(--s1); } .fill.s2 { fill: var(--s2); }
.fill.s3 { fill: var(--s3); } .fill.s4 { fill: var(--s4); } .fill.s5 { fill: var(--s5); }
.fill.s6 { fill: var(--s6); } .fill.s7 { fill: var(--s7); }
i.s0 { background: var(--s0); } i.s1 { background: var(--s1); } i.s2 { background: var(--s2); }
i.s3 { background: var(--s3); } i.s4 { background: var(--s4); } i.s5 { background: var(--s5); }
i.s6 { background: var(--s6); } i.s7 { background: var(--s7); }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; font-size: 13px; margin: 6px 0 0 48px; }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 3px;
  margin-right: 6px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums;
  font-size: 14px; }
th { color: var(--soft); font-weight: 500; font-size: 13px; text-align: right;
  white-space: nowrap; }
th, td { padding: 7px 10px; border-bottom: 1px solid var(--rule); }
td { text-align: right; white-space: nowrap; }
tr:last-child td { border-bottom: 0; }
th.text, td.text { text-align: left; }
td.text { white-space: normal; overflow-wrap: anywhere; min-width: 9em; }
td.bad { color: var(--bad); font-weight: 600; }
summary { cursor: pointer; font-weight: 600; font-size: 16px; }
.empty { color: var(--soft); padding: 18px 0 22px; }
footer { color: var(--soft); font-size: 13px; margin-top: 22px; }
@media print { body { background: none; } .card { break-inside: avoid; } main { padding: 0; } }
"""
