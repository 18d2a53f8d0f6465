package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"golang.org/x/term"
)

// printTable prints rows. The first row is the heading. On a terminal that is too narrow for the table, it prints each row
// as a paragraph with wrapped lines. In a pipe, each row is one line.
func printTable(w io.Writer, rows [][]string) error {
	width := 0
	if file, ok := w.(*os.File); ok && isTerminal(w) {
		width, _, _ = term.GetSize(int(file.Fd()))
	}
	return printTableIn(w, rows, width)
}

// printTableIn prints a table for a terminal with so many columns; zero: there is no limit.
func printTableIn(w io.Writer, rows [][]string, columns int) error {
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	widest := 0
	for line := range strings.Lines(text.String()) {
		widest = max(widest, len([]rune(strings.TrimRight(line, " \n"))))
	}
	if columns == 0 || widest <= columns {
		_, err := io.WriteString(w, text.String())
		return err
	}
	heading := rows[0]
	for _, row := range rows[1:] {
		if _, err := fmt.Fprintln(w, row[0]); err != nil {
			return err
		}
		for i, cell := range row[1:] {
			if cell == "" {
				continue
			}
			for _, line := range wrap(heading[i+1]+": "+cell, max(columns-2, 20)) {
				if _, err := fmt.Fprintln(w, "  "+line); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// wrap breaks a text at its spaces into lines of at most so many columns. A longer word has a line of its own.
func wrap(text string, columns int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > columns {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
