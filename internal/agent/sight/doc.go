// Package sight tells what the runs of a data root seem to be: what the table knows of them, and what their run directories
// and processes show. It decides nothing and ends nothing.
package sight
