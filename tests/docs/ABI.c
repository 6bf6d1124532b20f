/* What the fragment of docs/ABI.md leaves out. */
#include <radixkv.h>

void at_start(void);

void at_start(void) {
#include "ABI-1.inc"
}
