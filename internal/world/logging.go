package world

import (
	"context"
	"log/slog"
)

// Components of the log. Config.Logger gets one as the attribute "component" of each line, but for lines
// about the server as a whole.
const (
	logAggregation     = "aggregation"
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
		logAggregation, logAudit, logAuthentication, logAuthorization, logBackups, logCertificates, logConnections, logControllers, logCustomResources,
		logEncryption, logForks, logRequests, logStore, logWebhooks,
	}
}

// logOf returns the log of a component.
func (p *process) logOf(component string) *slog.Logger {
	if p.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return p.Logger.With("component", component)
}

// note logs messages of the store.
func (p *process) note(warning bool, message string, pairs ...any) {
	level := slog.LevelInfo
	if warning {
		level = slog.LevelWarn
	}
	p.logOf(logStore).Log(context.Background(), level, message, pairs...)
}
