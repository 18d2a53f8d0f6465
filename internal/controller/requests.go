package controller

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
)

const requestCollection = "certificatesigningrequests.certificates.k8s.io"

// How long certificate signing requests stay, by their outcome.
const (
	respondedStays = time.Hour      // issued, denied or failed
	waitingStays   = 24 * time.Hour // pending, or approved and not issued
)

// requests deletes CertificateSigningRequests that are no longer needed.
type requests struct{ follower }

func newRequests(l *Loops, q *queue) loop {
	return &requests{follower{l: l, queue: q, collection: requestCollection}}
}

// sync deletes a request that has expired, or queues it for that time.
func (r *requests) sync(ctx context.Context, i item) error {
	o := r.l.store.Any().Get(i.collection, i.key)
	if o == nil {
		return nil
	}
	c, err := registry.Decode[certificatesv1.CertificateSigningRequest](o)
	if err != nil || c.DeletionTimestamp != nil {
		return err
	}
	end := endOf(c)
	if end.IsZero() {
		return nil
	}
	if left := end.Sub(r.l.now()); left >= 0 {
		r.l.addAt(r.queue, i, end.Add(time.Millisecond))
		return nil
	}
	return r.l.remove(ctx, i.object, o, metav1.DeletePropagationBackground)
}

// endOf returns when a request expires, zero for never.
func endOf(c *certificatesv1.CertificateSigningRequest) time.Time {
	var end time.Time
	at := func(t time.Time) {
		if !t.IsZero() && (end.IsZero() || t.Before(end)) {
			end = t
		}
	}
	after := func(from metav1.Time, stays time.Duration) {
		if !from.IsZero() {
			at(from.Add(stays))
		}
	}
	if len(c.Status.Conditions) == 0 {
		after(c.CreationTimestamp, waitingStays)
	}
	issued := len(c.Status.Certificate) > 0
	for _, condition := range c.Status.Conditions {
		if condition.Status == corev1.ConditionFalse {
			continue
		}
		switch condition.Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			after(condition.LastUpdateTime, respondedStays)
		case certificatesv1.CertificateApproved:
			if issued {
				after(condition.LastUpdateTime, respondedStays)
				at(expiryOf(c.Status.Certificate))
			} else {
				after(condition.LastUpdateTime, waitingStays)
			}
		}
	}
	return end
}

// expiryOf returns when the first certificate of a chain expires, zero when it cannot be
// parsed.
func expiryOf(chain []byte) time.Time {
	block, _ := pem.Decode(chain)
	if block == nil {
		return time.Time{}
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}
	}
	return certificate.NotAfter
}
