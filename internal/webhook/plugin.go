package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"
)

const (
	// pluginTime is the maximum duration of a run of an exec plug-in.
	pluginTime = 30 * time.Second
	// pluginPipes is how long a plug-in may leave its output open to processes that it started.
	pluginPipes = time.Second
	// pluginInfo is the environment variable with the request to a plug-in.
	pluginInfo = "KUBERNETES_EXEC_INFO"
)

// plugin gets the credentials of a kubeconfig's user from a program (`exec`), as client-go does, with a difference: it kills
// the program and its children when no request waits for them any more, and after pluginTime. Requests of client-go wait for
// a program that hangs even after their clients have left. It is safe for concurrent use.
type plugin struct {
	name    string
	args    []string
	env     []string // in addition to the environment of the server
	version string
	conns   *connrotation.ConnectionTracker // closed when the certificate changes
	runs    Flights[*credentials]

	mu   sync.Mutex
	last *credentials // of the last run; nil if there was none, or if they were refused; guarded by mu
	// shown is the certificate that connections have used; guarded by mu
	shown *tls.Certificate
}

// credentials are the result of a run.
type credentials struct {
	token       string
	certificate *tls.Certificate
	expires     time.Time // zero: never
}

// newPlugin returns the plug-in of a configuration.
func newPlugin(c *rest.Config, e *api.ExecConfig) (*plugin, error) {
	if e.APIVersion != "client.authentication.k8s.io/v1" && e.APIVersion != "client.authentication.k8s.io/v1beta1" {
		return nil, fmt.Errorf("exec plugin: invalid apiVersion %q", e.APIVersion)
	}
	switch e.InteractiveMode {
	case api.NeverExecInteractiveMode, api.IfAvailableExecInteractiveMode:
	case api.AlwaysExecInteractiveMode:
		return nil, errors.New("exec plugin: interactiveMode Always is not supported: a server has no terminal")
	default:
		return nil, fmt.Errorf("exec plugin: unknown interactiveMode: %q", e.InteractiveMode)
	}
	info := clientauthenticationv1.ExecCredential{}
	info.APIVersion, info.Kind = e.APIVersion, "ExecCredential"
	if e.ProvideClusterInfo {
		with := *c
		with.ExecProvider = e
		cluster, err := rest.ConfigToExecCluster(&with)
		if err != nil {
			return nil, err
		}
		info.Spec.Cluster = new(clientauthenticationv1.Cluster)
		if err := clientauthenticationv1.Convert_clientauthentication_Cluster_To_v1_Cluster(cluster, info.Spec.Cluster, nil); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(&info)
	if err != nil {
		return nil, err
	}
	p := &plugin{name: filepath.Clean(e.Command), args: e.Args, version: e.APIVersion, conns: connrotation.NewConnectionTracker()}
	for _, v := range e.Env {
		p.env = append(p.env, v.Name+"="+v.Value)
	}
	p.env = append(p.env, pluginInfo+"="+string(text))
	p.runs = Flights[*credentials]{Most: math.MaxInt, Limit: pluginTime} // callers limit the number of waiting requests
	return p, nil
}

// transportConfig returns the settings of a transport. An exec plug-in of c is a plugin.
func transportConfig(c *rest.Config) (*transport.Config, error) {
	e := c.ExecProvider
	if e == nil {
		return c.TransportConfig()
	}
	without := *c
	without.ExecProvider = nil
	settings, err := without.TransportConfig()
	if err != nil || settings.HasTokenAuth() || settings.HasBasicAuth() || settings.HasCertAuth() {
		return settings, err
	}
	p, err := newPlugin(&without, e)
	if err != nil {
		return nil, err
	}
	settings.Wrap(func(next http.RoundTripper) http.RoundTripper { return &authenticated{next, p} })
	settings.TLS.GetCertHolder = &transport.GetCertHolder{GetCert: p.certificate}
	dial := (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	if settings.DialHolder != nil {
		dial = settings.DialHolder.Dial
	}
	settings.DialHolder = &transport.DialHolder{Dial: connrotation.NewDialerWithTracker(dial, p.conns).DialContext}
	return settings, nil
}

// get returns valid credentials.
func (p *plugin) get(ctx context.Context) (*credentials, error) {
	p.mu.Lock()
	last := p.last
	p.mu.Unlock()
	if last != nil && (last.expires.IsZero() || time.Now().Before(last.expires)) {
		return last, nil
	}
	next, err := p.runs.Join(ctx, Key{}, "", 0, p.run)
	if err != nil {
		return nil, fmt.Errorf("getting credentials: exec plugin %s: %w", p.name, err)
	}
	return next, nil
}

// run runs the program.
func (p *plugin) run(ctx context.Context) (*credentials, error) {
	var out boundedOutput
	c := exec.CommandContext(ctx, p.name, p.args...)
	c.Env = append(os.Environ(), p.env...)
	c.Stdout, c.Stderr, c.WaitDelay = &out, os.Stderr, pluginPipes
	killAll(c)
	switch err := c.Run(); {
	case ctx.Err() == context.DeadlineExceeded:
		return nil, fmt.Errorf("it was killed after %v", p.runs.Limit)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case out.full:
		return nil, errLargeOutput
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return nil, err
	}
	next, err := p.read(out.bytes)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	rotated := p.shown != nil && !sameCertificate(p.shown, next.certificate)
	p.last, p.shown = next, next.certificate
	p.mu.Unlock()
	if rotated {
		p.conns.CloseAll()
	}
	return next, nil
}

// read decodes the output of the program.
func (p *plugin) read(out []byte) (*credentials, error) {
	var e clientauthenticationv1.ExecCredential // v1beta1 has the same fields
	if err := json.Unmarshal(out, &e); err != nil {
		return nil, errors.New("its output is not an ExecCredential in JSON") // not with a part of it, which may be secret
	}
	s := e.Status
	switch {
	case e.Kind != "ExecCredential" || e.APIVersion != p.version:
		return nil, fmt.Errorf("exec plugin is configured to use API version %s, plugin returned version %s", p.version, e.APIVersion)
	case s == nil:
		return nil, errors.New("exec plugin didn't return a status field")
	case s.Token == "" && s.ClientCertificateData == "" && s.ClientKeyData == "":
		return nil, errors.New("exec plugin didn't return a token or cert/key pair")
	case (s.ClientCertificateData == "") != (s.ClientKeyData == ""):
		return nil, errors.New("exec plugin returned only certificate or key, not both")
	}
	c := &credentials{token: s.Token}
	if s.ExpirationTimestamp != nil {
		c.expires = s.ExpirationTimestamp.Time
	}
	if s.ClientKeyData != "" {
		pair, err := tls.X509KeyPair([]byte(s.ClientCertificateData), []byte(s.ClientKeyData))
		if err != nil {
			return nil, fmt.Errorf("failed parsing client key/certificate: %w", err)
		}
		c.certificate = &pair
	}
	return c, nil
}

// certificate returns the certificate for a TLS handshake; nil for none.
func (p *plugin) certificate() (*tls.Certificate, error) {
	ctx, cancel := context.WithTimeout(context.Background(), pluginTime)
	defer cancel()
	c, err := p.get(ctx)
	if err != nil {
		return nil, err
	}
	return c.certificate, nil
}

func sameCertificate(a, b *tls.Certificate) bool {
	return b != nil && len(a.Certificate) == len(b.Certificate) && bytes.Equal(a.Certificate[0], b.Certificate[0])
}

// authenticated adds the credentials of a plug-in to requests.
type authenticated struct {
	http.RoundTripper
	plugin *plugin
}

// RoundTrip implements http.RoundTripper.
func (a *authenticated) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") != "" {
		return a.RoundTripper.RoundTrip(r)
	}
	c, err := a.plugin.get(r.Context())
	if err != nil {
		if r.Body != nil {
			r.Body.Close() // as a RoundTripper must
		}
		return nil, err
	}
	if c.token != "" {
		r = r.Clone(r.Context()) // a RoundTripper must not change its request
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := a.RoundTripper.RoundTrip(r)
	if err == nil && response.StatusCode == http.StatusUnauthorized {
		// The next request runs the plug-in again.
		a.plugin.forget(c)
	}
	return response, err
}

// WrappedRoundTripper returns the transport, whose idle connections are closed.
func (a *authenticated) WrappedRoundTripper() http.RoundTripper { return a.RoundTripper }

// forget drops the credentials c, so that the next request runs the program.
func (p *plugin) forget(c *credentials) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == c {
		p.last = nil
	}
}

// boundedOutput keeps the output of a program. Output of more than responseBytes is an error.
type boundedOutput struct {
	bytes []byte
	full  bool
}

var errLargeOutput = errors.New("the output has more than 1 MiB")

// Write implements io.Writer.
func (b *boundedOutput) Write(p []byte) (int, error) {
	if len(b.bytes)+len(p) > responseBytes {
		b.full = true
		return 0, errLargeOutput
	}
	b.bytes = append(b.bytes, p...)
	return len(p), nil
}
