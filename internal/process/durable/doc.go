// Package durable writes files of a directory so that neither a power cut nor a full disk takes them away: they are synced
// before they get their name, and what must be written later can have its room taken before.
package durable
