package webhook

import (
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/tidemark-dev/tidemark/internal/patch"
)

// The keys of audit annotations end with the number of the run and the index of the webhook.
const (
	mutationPrefix     = "mutation.webhook.admission.k8s.io/"
	patchPrefix        = "patch.webhook.admission.k8s.io/"
	failedOpenMutation = "failed-open.mutation.webhook.admission.k8s.io/"
)

func (d *dispatcher) key(prefix string, index int) string {
	round := 0
	if d.a.Reinvoking {
		round = 1
	}
	return fmt.Sprintf("%sround_%d_index_%d", prefix, round, index)
}

// annotateCall annotates the audit event with whether a webhook changed the object.
func (d *dispatcher) annotateCall(h *hook, index int, changed bool) {
	if !d.c.Audited {
		return
	}
	value, _ := json.Marshal(struct {
		Configuration string `json:"configuration"`
		Webhook       string `json:"webhook"`
		Mutated       bool   `json:"mutated"`
	}{h.configuration, h.name, changed})
	d.a.Annotate(d.key(mutationPrefix, index), string(value))
}

// annotatePatch annotates the audit event with a patch. Events of the level Metadata omit it.
func (d *dispatcher) annotatePatch(h *hook, index int, operations patch.Operations) {
	if !d.c.Audited {
		return
	}
	value, err := json.Marshal(struct {
		Configuration string           `json:"configuration"`
		Webhook       string           `json:"webhook"`
		Patch         patch.Operations `json:"patch,omitempty"`
		PatchType     string           `json:"patchType,omitempty"`
	}{h.configuration, h.name, operations, string(admissionv1.PatchTypeJSONPatch)})
	if err != nil {
		d.c.Log.Warn("the patch of a webhook cannot be noted in audit events", "webhook", h.name, "err", err)
		return
	}
	d.a.Annotate(d.key(patchPrefix, index), string(value))
}

// annotateFailure annotates the audit event with a failure that was ignored.
func (d *dispatcher) annotateFailure(h *hook, index int) {
	if d.c.Audited {
		d.a.Annotate(d.key(failedOpenMutation, index), h.name)
	}
}
