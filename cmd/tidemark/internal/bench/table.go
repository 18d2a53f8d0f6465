package bench

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// WriteTable writes the report as text: a table for each server, and the ratios if there
// are two servers.
func (r *Report) WriteTable(w io.Writer) error {
	m := r.Machine
	fmt.Fprintf(w, "%s: %d CPUs, %s, %d MiB, %s\n",
		r.Date.Format("2006-01-02 15:04 MST"), m.CPUs, orUnknown(m.Model), m.MemoryMiB, m.OS)
	fmt.Fprintf(w, "%d rounds of %v, %d pods, seed %d: median (least..most)\n", r.Options.Rounds, r.Options.Duration, r.Options.Objects, r.Options.Seed)
	for _, s := range r.Servers {
		if err := s.writeTable(w); err != nil {
			return err
		}
	}
	if r.Interrupted {
		fmt.Fprintln(w, "\nThe run was interrupted.")
	}
	if len(r.Servers) == 2 {
		fmt.Fprintln(w)
		return compareServers(r.Servers[0], r.Servers[1]).WriteTable(w)
	}
	return nil
}

func orUnknown(text string) string {
	if text == "" {
		return "unknown processor"
	}
	return text
}

func (s ServerReport) writeTable(w io.Writer) error {
	fmt.Fprintf(w, "\n%s:", s.Name)
	if s.URL != "" {
		fmt.Fprintf(w, " %s %s", s.URL, s.Version)
	}
	if s.OtherURL != "" {
		fmt.Fprintf(w, ", with %s", s.OtherURL)
	}
	if s.Pad > 0 {
		fmt.Fprintf(w, ", pods padded by %d bytes", s.Pad)
	}
	if s.ConfigMapPad > 0 {
		fmt.Fprintf(w, ", ConfigMaps padded by %d bytes", s.ConfigMapPad)
	}
	if s.DeploymentPad > 0 {
		fmt.Fprintf(w, ", Deployments padded by %d bytes", s.DeploymentPad)
	}
	fmt.Fprintln(w)
	for _, p := range s.Processes {
		fmt.Fprintf(w, "  process %d %s: RSS %s MiB, anonymous %s MiB", p.PID, p.Command, short(float64(p.Memory.RSS)/(1<<20)), short(float64(p.Memory.Anon)/(1<<20)))
		if p.GOGC != "" || p.GOMEMLIMIT != "" {
			fmt.Fprintf(w, " GOGC=%s GOMEMLIMIT=%s", p.GOGC, p.GOMEMLIMIT)
		}
		fmt.Fprintln(w)
	}
	columns := slices.Concat([]metric{cpuPerOp, rate, p50, p99}, extraColumns, []metric{bytesPerItem, cpuPerByte, rss, anon, peak, heap, gogc, marking, ownPerOp})
	rows := [][]string{{"scenario", "loop"}}
	for _, c := range columns {
		rows[0] = append(rows[0], c.name)
	}
	for _, x := range s.Results {
		if len(x.Rounds) == 0 {
			continue
		}
		row := []string{x.Name, x.Loop}
		for _, c := range columns {
			row = append(row, x.cell(c))
		}
		rows = append(rows, row)
	}
	if len(rows) == 1 {
		fmt.Fprintln(w, "  nothing was measured")
		return s.writeNotes(w)
	}
	return errors.Join(writeRows(w, rows), s.writeNotes(w))
}

// writeNotes writes the rows that were skipped or failed, and the extra measurements.
func (s ServerReport) writeNotes(w io.Writer) error {
	for _, x := range s.Results {
		switch extra := x.extra(); {
		case x.Skipped != "":
			fmt.Fprintf(w, "  %s is skipped: %s\n", x.Name, x.Skipped)
		case x.Failed != "":
			fmt.Fprintf(w, "  %s FAILED: %s\n", x.Name, x.Failed)
		case extra != "":
			fmt.Fprintf(w, "  %s: %s\n", x.Name, extra)
		}
	}
	return nil
}

// extra formats the measurements of this scenario alone, without those that have a column.
func (x Result) extra() string {
	if len(x.Rounds) == 0 {
		return ""
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(x.Rounds[0].Extra)) {
		if !slices.ContainsFunc(extraColumns, func(f metric) bool { return f.extra == name }) {
			parts = append(parts, name+" "+x.cell(extraMetric(name, name)))
		}
	}
	return strings.Join(parts, ", ")
}

// summary formats a row in one line, for progress.
func (x Result) summary() string {
	var parts []string
	for _, f := range slices.Concat([]metric{cpuPerOp, rate, p50, p99}, extraColumns) {
		if cell := x.cell(f); cell != "" {
			parts = append(parts, f.name+" "+cell)
		}
	}
	switch {
	case x.Skipped != "":
		return "skipped: " + x.Skipped
	case x.Failed != "":
		return "FAILED: " + x.Failed
	case len(parts) == 0:
		return x.extra()
	}
	return strings.Join(parts, ", ")
}

// writeRows writes aligned columns, without those that have only a heading.
func writeRows(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		var cells []string
		for i, cell := range row {
			if slices.ContainsFunc(rows[1:], func(r []string) bool { return r[i] != "" }) {
				cells = append(cells, cell)
			}
		}
		fmt.Fprintln(t, strings.TrimRight(strings.Join(cells, "\t"), "\t "))
	}
	return t.Flush()
}
