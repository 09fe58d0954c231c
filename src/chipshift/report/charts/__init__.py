"""Charts as inline SVG: no script, colours from the page's own palette, text in every mark."""
