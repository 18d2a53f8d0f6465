package integration_test

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestCloseTime: a server closes within a second. It ends watches cleanly, and breaks off requests that do not end.
func TestCloseTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servertest.Start(t, &tidemark.Server{InProcess: true})
		c := s.RESTConfig()
		h := servertest.Client(t, c)
		watched := make(chan error, 1)
		go func() {
			resp, err := h.Get(c.Host + configMaps + "?watch=1")
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
			}
			watched <- err
		}()
		brokenOff := make(chan error, 1)
		body, client := io.Pipe()
		defer client.Close()
		go func() {
			_, err := h.Post(c.Host+configMaps, "application/json", body)
			brokenOff <- err
		}()
		client.Write([]byte(`{"metadata":`)) // the rest does not come
		synctest.Wait()
		closing := time.Now()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(closing); took > time.Second {
			t.Errorf("Close took %v", took)
		}
		if err := <-watched; err != nil {
			t.Errorf("the watch ends with %v", err)
		}
		if err := <-brokenOff; err == nil {
			t.Error("a request without an end got a response")
		}
	})
}
