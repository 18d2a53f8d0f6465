package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/tsdb"
)

// panel is a graph of the dashboard.
type panel struct {
	title, unit string
	targets     []target
	// series are the results of the targets.
	series []series
}

type target struct{ expr, legend string }

// series is a line. Times are seconds since the first scrape.
type series struct {
	name   string
	points []point
}

type point struct{ time, value float64 }

// parsePanels reads the graphs of a dashboard of Grafana.
func parsePanels(text []byte) ([]panel, error) {
	var dashboard struct {
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr, LegendFormat string }
			FieldConfig struct{ Defaults struct{ Unit string } }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		return nil, err
	}
	var all []panel
	for _, p := range dashboard.Panels {
		if p.Type != "timeseries" {
			continue
		}
		x := panel{title: p.Title, unit: p.FieldConfig.Defaults.Unit}
		for _, t := range p.Targets {
			x.targets = append(x.targets, target{strings.NewReplacer("$__rate_interval", "5s", "$instance", "tidemark").Replace(t.Expr), t.LegendFormat})
		}
		all = append(all, x)
	}
	return all, nil
}

// database has the scraped metrics.
type database struct {
	db          *tsdb.DB
	engine      *promql.Engine
	first, last time.Time
}

func newDatabase(dir string) (*database, error) {
	db, err := tsdb.Open(dir, slog.New(slog.DiscardHandler), nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		return nil, err
	}
	return &database{db: db, engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 50e6, Timeout: time.Minute, LookbackDelta: 5 * time.Second})}, nil
}

func (d *database) close() { d.db.Close() } //nolint:errcheck // it is temporary

// add stores a scrape.
func (d *database) add(text []byte, at time.Time) error {
	if d.first.IsZero() {
		d.first = at
	}
	d.last = at
	a := d.db.Appender(context.Background())
	p := textparse.NewPromParser(text, labels.NewSymbolTable(), false)
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return a.Commit()
		}
		if err == nil && entry == textparse.EntrySeries {
			var l labels.Labels
			p.Labels(&l)
			_, _, value := p.Series()
			_, err = a.Append(0, labels.NewBuilder(l).Set("instance", "tidemark").Labels(), at.UnixMilli(), value)
		}
		if err != nil {
			return errors.Join(err, a.Rollback())
		}
	}
}

var legendLabel = regexp.MustCompile(`{{(\w+)}}`)

// evaluate finds the series of a panel.
func (d *database) evaluate(ctx context.Context, p *panel) error {
	for _, t := range p.targets {
		q, err := d.engine.NewRangeQuery(ctx, d.db, nil, t.expr, d.first, d.last, time.Second)
		if err != nil {
			return err
		}
		matrix, err := q.Exec(ctx).Matrix()
		if err != nil {
			return fmt.Errorf("%s: %w", t.expr, err)
		}
		for _, line := range matrix {
			s := series{name: strings.TrimSpace(legendLabel.ReplaceAllStringFunc(t.legend, func(of string) string {
				return line.Metric.Get(of[2 : len(of)-2])
			}))}
			for _, f := range line.Floats {
				s.points = append(s.points, point{float64(f.T-d.first.UnixMilli()) / 1000, f.F})
			}
			p.series = append(p.series, s)
		}
		q.Close()
	}
	return nil
}
