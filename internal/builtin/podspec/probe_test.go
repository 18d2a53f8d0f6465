package podspec_test

import (
	"testing"

	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

func TestProbes(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.containers[0]", []testkinds.Rule{
		{"a valid probe of each kind", "livenessProbe: {exec: {command: [a]}}\nreadinessProbe: {httpGet: {port: 80}}\nstartupProbe: {tcpSocket: {port: http}}", ""},
		{"a probe needs a handler", "livenessProbe: {periodSeconds: 1}", "livenessProbe: Required value: must specify a handler type"},
		{"a probe has one handler", "livenessProbe: {exec: {command: [a]}, tcpSocket: {port: 80}}", "livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type"},
		{"exec needs a command", "livenessProbe: {exec: {}}", "livenessProbe.exec.command: Required value"},
		{"httpGet needs a port", "livenessProbe: {httpGet: {path: /}}", "livenessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive"},
		{"httpGet has a port up to 65535", "livenessProbe: {httpGet: {port: 65536}}", "livenessProbe.httpGet.port: Invalid value: 65536: must be between 1 and 65535, inclusive"},
		{"httpGet names a port with a letter", "livenessProbe: {httpGet: {port: \"1\"}}", `livenessProbe.httpGet.port: Invalid value: "1": must contain at least one letter (a-z)`},
		{"httpGet has a known scheme", "livenessProbe: {httpGet: {port: 80, scheme: http}}", `livenessProbe.httpGet.scheme: Unsupported value: "http": supported values: "HTTP", "HTTPS"`},
		{"httpGet has names of headers", "livenessProbe: {httpGet: {port: 80, httpHeaders: [{name: a b, value: c}]}}", `livenessProbe.httpGet.httpHeaders: Invalid value: "a b": a valid HTTP header must consist of...`},
		{"tcpSocket needs a port", "livenessProbe: {tcpSocket: {}}", "livenessProbe.tcpSocket.port: Invalid value: 0: must be between 1 and 65535, inclusive"},
		{"grpc needs a port", "livenessProbe: {grpc: {port: 0}}", "livenessProbe.grpc.port: Invalid value: 0: must be between 1 and 65535, inclusive"},
		{"initialDelaySeconds is not negative", "livenessProbe: {exec: {command: [a]}, initialDelaySeconds: -1}", "livenessProbe.initialDelaySeconds: Invalid value: -1: must be greater than or equal to 0"},
		{"timeoutSeconds is not negative", "livenessProbe: {exec: {command: [a]}, timeoutSeconds: -1}", "livenessProbe.timeoutSeconds: Invalid value: -1: must be greater than or equal to 0"},
		{"periodSeconds is not negative", "livenessProbe: {exec: {command: [a]}, periodSeconds: -1}", "livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0"},
		{"successThreshold is not negative", "readinessProbe: {exec: {command: [a]}, successThreshold: -1}", "readinessProbe.successThreshold: Invalid value: -1: must be greater than or equal to 0"},
		{"failureThreshold is not negative", "livenessProbe: {exec: {command: [a]}, failureThreshold: -1}", "livenessProbe.failureThreshold: Invalid value: -1: must be greater than or equal to 0"},
		{"terminationGracePeriodSeconds is positive", "livenessProbe: {exec: {command: [a]}, terminationGracePeriodSeconds: 0}", "livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0"},
		{"liveness succeeds once", "livenessProbe: {exec: {command: [a]}, successThreshold: 2}", "livenessProbe.successThreshold: Invalid value: 2: must be 1"},
		{"startup succeeds once", "startupProbe: {exec: {command: [a]}, successThreshold: 2}", "startupProbe.successThreshold: Invalid value: 2: must be 1"},
		{"readiness may succeed several times", "readinessProbe: {exec: {command: [a]}, successThreshold: 2}", ""},
		{"readiness has no grace period", "readinessProbe: {exec: {command: [a]}, terminationGracePeriodSeconds: 5}", "readinessProbe.terminationGracePeriodSeconds: Invalid value: 5: must not be set for readinessProbes"},
		{"startup is checked like liveness", "startupProbe: {exec: {}, periodSeconds: -1}", "startupProbe.exec.command: Required value\nstartupProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0"},
	}), podErrors)
}

func TestLifecycle(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.containers[0]", []testkinds.Rule{
		{"valid handlers", "lifecycle: {postStart: {sleep: {seconds: 1}}, preStop: {httpGet: {port: 80}}}", ""},
		{"a hook needs a handler", "lifecycle: {postStart: {}}", "lifecycle.postStart: Required value: must specify a handler type"},
		{"a hook has one handler", "lifecycle: {preStop: {sleep: {seconds: 1}, exec: {command: [a]}}}", "lifecycle.preStop.sleep: Forbidden: may not specify more than 1 handler type"},
		{"sleep is not negative", "lifecycle: {preStop: {sleep: {seconds: -1}}}", "lifecycle.preStop.sleep: Invalid value: -1: must be non-negative and less than terminationGracePeriodSeconds (30)"},
		{"sleep ends within the grace period", "lifecycle: {preStop: {sleep: {seconds: 31}}}", "lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)"},
		{"tcpSocket has a valid port", "lifecycle: {preStop: {tcpSocket: {port: 0}}}", "lifecycle.preStop.tcpSocket.port: Invalid value: 0: must be between 1 and 65535, inclusive"},
	}), podErrors)
}

func TestProbeDefaults(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.containers[0]", []testkinds.Rule{
		{"exec", "livenessProbe: {exec: {command: [a]}}", "livenessProbe.failureThreshold: 3\nlivenessProbe.periodSeconds: 10\nlivenessProbe.successThreshold: 1\nlivenessProbe.timeoutSeconds: 1"},
		{"httpGet", "readinessProbe: {httpGet: {port: 80}}", "readinessProbe.failureThreshold: 3\nreadinessProbe.httpGet.path: /\nreadinessProbe.httpGet.scheme: HTTP\nreadinessProbe.periodSeconds: 10\nreadinessProbe.successThreshold: 1\nreadinessProbe.timeoutSeconds: 1"},
		{"grpc", "startupProbe: {grpc: {port: 80}}", "startupProbe.failureThreshold: 3\nstartupProbe.grpc.service: \"\"\nstartupProbe.periodSeconds: 10\nstartupProbe.successThreshold: 1\nstartupProbe.timeoutSeconds: 1"},
		{"what is set stays", "livenessProbe: {httpGet: {port: 80, path: /x, scheme: HTTPS}, timeoutSeconds: 2, periodSeconds: 3, successThreshold: 1, failureThreshold: 5}", ""},
		{"httpGet of a hook", "lifecycle: {postStart: {httpGet: {port: 80}}, preStop: {httpGet: {port: 81}}}", "lifecycle.postStart.httpGet.path: /\nlifecycle.postStart.httpGet.scheme: HTTP\nlifecycle.preStop.httpGet.path: /\nlifecycle.preStop.httpGet.scheme: HTTP"},
	}), defaultsBelow("spec.containers[0]."))
}
