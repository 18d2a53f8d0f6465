package authn

// Intermediates is for tests.
var Intermediates = intermediates
