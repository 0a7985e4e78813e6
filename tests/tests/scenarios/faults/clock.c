// System time set by a test: this library is loaded before a program's own libraries. It adds a number of
// seconds to the real time. The number is in the first eight bytes of the file CLOCK_FILE.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile long *ahead;

__attribute__((constructor)) static void begin(void) {
	const char *name = getenv("CLOCK_FILE");
	int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
	if (file >= 0) {
		void *page = mmap(0, 4096, PROT_READ, MAP_SHARED, file, 0);
		ahead = page == MAP_FAILED ? 0 : page;
		close(file);
	}
}

int clock_gettime(clockid_t clock, struct timespec *time) {
	int result = syscall(SYS_clock_gettime, clock, time);
	if (result == 0 && ahead && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += *ahead;
	return result;
}
