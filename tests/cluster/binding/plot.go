package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// Of each picture of the plot, in pixels, and the seconds between which its axis, which is logarithmic, goes.
const (
	plotWidth, plotHeight, plotMargin = 420.0, 240.0, 50.0
	leastSeconds, mostSeconds         = 0.01, 300.0
	// Points of a curve at most.
	plotPoints = 200
)

var plotColors = []string{"#999999", "#bbbbbb", "#0b6e4f", "#6abf4b", "#1f77b4", "#17becf", "#d62728", "#9467bd", "#cccccc", "#ff7f0e"}

// plot draws, for each load and clock, how much of it the best race of each row had bound when, as an SVG.
func plot(all []figures, rows []string, loads []load) []byte {
	var out bytes.Buffer
	modes := []string{draining, creating}
	height := float64(len(loads))*(plotHeight+plotMargin) + 20*float64(len(rows)) + plotMargin
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" font-family="sans-serif" font-size="12">`+"\n",
		2*(plotWidth+plotMargin)+plotMargin, height)
	out.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	for i, l := range loads {
		for k, mode := range modes {
			fmt.Fprintf(&out, `<g transform="translate(%.0f %.0f)">`+"\n", plotMargin+float64(k)*(plotWidth+plotMargin), plotMargin+float64(i)*(plotHeight+plotMargin))
			drawFrame(&out, fmt.Sprintf("%v, %s", l, titles[mode]))
			for color, row := range rows {
				drawCourse(&out, best(all, row, l, mode), plotColors[color%len(plotColors)])
			}
			out.WriteString("</g>\n")
		}
	}
	for i, row := range rows {
		y := height - 20*float64(len(rows)-i)
		fmt.Fprintf(&out, `<line x1="%.0f" y1="%.0f" x2="%.0f" y2="%.0f" stroke="%s" stroke-width="3"/><text x="%.0f" y="%.0f">`,
			plotMargin, y, plotMargin+30, y, plotColors[i%len(plotColors)], plotMargin+40, y+4)
		_ = xml.EscapeText(&out, []byte(row))
		out.WriteString("</text>\n")
	}
	out.WriteString("</svg>\n")
	return out.Bytes()
}

// drawFrame draws the axes: seconds, and the share of the pods.
func drawFrame(out *bytes.Buffer, title string) {
	fmt.Fprintf(out, `<rect width="%.0f" height="%.0f" fill="none" stroke="black"/><text y="-8">`, plotWidth, plotHeight)
	_ = xml.EscapeText(out, []byte(title))
	out.WriteString("</text>\n")
	for _, seconds := range []float64{0.01, 0.1, 1, 10, 100} {
		fmt.Fprintf(out, `<line x1="%[1]f" y1="0" x2="%[1]f" y2="%[2]f" stroke="#eeeeee"/><text x="%[1]f" y="%[3]f" text-anchor="middle">%[4]g s</text>`+"\n",
			plotX(seconds), plotHeight, plotHeight+16, seconds)
	}
	for _, share := range []float64{0, 0.5, 1} {
		fmt.Fprintf(out, `<text x="-6" y="%.1f" text-anchor="end">%.0f %%</text>`+"\n", plotHeight*(1-share)+4, 100*share)
	}
}

func drawCourse(out *bytes.Buffer, f figures, color string) {
	if len(f.course) == 0 {
		return
	}
	var points []string
	step := max(1, len(f.course)/plotPoints)
	for i := 0; i < len(f.course); i += step {
		points = append(points, fmt.Sprintf("%.1f,%.1f", plotX(f.course[i]), plotHeight*(1-float64(i)/float64(f.Pods))))
	}
	points = append(points, fmt.Sprintf("%.1f,%.1f", plotX(f.course[len(f.course)-1]), plotHeight*(1-float64(len(f.course))/float64(f.Pods))))
	fmt.Fprintf(out, `<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>`+"\n", color, strings.Join(points, " "))
}

func plotX(seconds float64) float64 {
	within := min(max(seconds, leastSeconds), mostSeconds)
	return plotWidth * math.Log(within/leastSeconds) / math.Log(mostSeconds/leastSeconds)
}
