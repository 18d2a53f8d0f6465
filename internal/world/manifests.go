package world

import "github.com/tidemark-dev/tidemark/internal/admission/manifest"

// watchManifests makes the webhooks and policies in files follow their files.
func (p *process) watchManifests() {
	m := manifest.NewMetrics()
	for _, d := range p.Admission.Manifests {
		d.Watch(manifest.Watching{Now: p.Now, Log: p.logOf(logWebhooks), Metrics: m})
	}
	p.collectors = append(p.collectors, m.Collectors()...)
}
