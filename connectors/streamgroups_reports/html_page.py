"""A self-contained HTML page: a heading, an introduction, and a body.

It loads no other files, and follows the reader's light or dark colours. :mod:`streamgroups_reports.ownership` and
:mod:`streamgroups_reports.event_time` call it, and use the classes of its style sheet. Source: CSS Color Adjustment
(``color-scheme``).
"""

from __future__ import annotations

from html import escape

#: ``m0`` to ``m5`` are the colours of members, or of partitions.
_STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1c2430; --soft: #667085; --line: #e4e7ec; --kill: #c8102e;
  --good: #12805c; --m0: #3b76d9; --m1: #e58a1f; --m2: #2a9d74; --m3: #9a5bd0; --m4: #c9a400; --m5: #5f7d8c; }
@media (prefers-color-scheme: dark) { :root { --back: #12161d; --text: #e6e9ef; --soft: #98a2b3; --line: #2a313d;
  --kill: #ff5c6f; --good: #4ac79a; --m0: #5b94f0; --m1: #f0a044; --m2: #43bd90; --m3: #b67fe6; --m4: #e0c13c;
  --m5: #8fabb9; } }
body { margin: 0; background: var(--back); color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1160px; margin: 0 auto; padding: 28px 20px 48px; }
h1 { font-size: 26px; line-height: 1.2; margin: 0 0 6px; } h2 { font-size: 18px; margin: 34px 0 10px; }
p { margin: 0 0 10px; max-width: 130ch; } .intro, .soft { color: var(--soft); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 20px; padding: 0; margin: 18px 0 12px; list-style: none; font-size: 13px; }
.legend li { display: flex; align-items: center; gap: 7px; } .wide { overflow-x: auto; }
.wide svg { display: block; width: 100%; min-width: 820px; height: auto; font: 12px system-ui, sans-serif; }
text { fill: var(--text); } text.soft { fill: var(--soft); } text.end { text-anchor: end; } text.mid { text-anchor: middle; }
.m0 { fill: var(--m0); } .m1 { fill: var(--m1); } .m2 { fill: var(--m2); } .m3 { fill: var(--m3); } .m4 { fill: var(--m4); }
.m5 { fill: var(--m5); } .faint { opacity: .4; } rect:hover { filter: brightness(1.12); }
.grid { stroke: var(--line); } .axis { stroke: var(--soft); } .tick { stroke: var(--back); stroke-width: 1; opacity: .55; }
.over { fill: var(--back); stroke: var(--text); stroke-width: 1.5; } .hatch { stroke: var(--soft); stroke-width: 1.5; }
.line { fill: none; stroke-width: 1.5; } .s0 { stroke: var(--m0); } .s1 { stroke: var(--m1); } .s2 { stroke: var(--m2); }
.s3 { stroke: var(--m3); } .s4 { stroke: var(--m4); } .s5 { stroke: var(--m5); } .low { stroke: var(--text); stroke-width: 6; opacity: .3; }
.gap { fill: url(#hatch); opacity: .7; } .flight { fill: var(--kill); opacity: .85; }
.mark { stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 3 3; fill: none; } .mark.kill { stroke: var(--kill); stroke-width: 2; stroke-dasharray: none; }
text.word { fill: var(--soft); stroke: none; } text.word.kill { fill: var(--kill); font-weight: 600; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 14px; }
th, td { padding: 4px 14px; text-align: right; border-bottom: 1px solid var(--line); } th { color: var(--soft); font-weight: 600; }
th.text, td.text { text-align: left; } .checks { list-style: none; padding: 0; margin: 0; } .checks li { margin: 3px 0; }
.good::before { content: "✓ "; color: var(--good); font-weight: 700; } .bad::before { content: "✗ "; color: var(--kill); font-weight: 700; }
"""


def html_page(title: str, intro: str, body: str) -> str:
    """Returns a whole page.

    Args:
        title: the heading, as plain text.
        intro: a sentence or two below it, as plain text.
        body: HTML, which the caller has escaped.

    >>> "<h1>Nobody &lt;yet&gt;</h1>" in html_page("Nobody <yet>", "", "")
    True
    """
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
<p class="intro">{escape(intro)}</p>
{body}
</main>
</body>
</html>
"""
