package tidemark

import "log/slog"

// Components of the log. Server.Logger gets one as the attribute "component" of each line, but for lines
// about the server as a whole.
const (
	logAudit           = "audit"
	logAuthentication  = "authentication"
	logAuthorization   = "authorization"
	logBackups         = "backups"
	logCertificates    = "certificates"
	logConnections     = "connections"
	logControllers     = "controllers"
	logCustomResources = "customresources"
	logEncryption      = "encryption"
	logForks           = "forks"
	logRequests        = "requests"
	logStore           = "store"
	logWebhooks        = "webhooks"
)

// LogComponents returns the values of the attribute "component" in the log of a server, sorted.
func LogComponents() []string {
	return []string{
		logAudit, logAuthentication, logAuthorization, logBackups, logCertificates, logConnections, logControllers, logCustomResources,
		logEncryption, logForks, logRequests, logStore, logWebhooks,
	}
}

// logOf returns the log of a component.
func (s *Server) logOf(component string) *slog.Logger {
	if s.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.Logger.With("component", component)
}
