// Answers as the NVIDIA driver's library does to the one question that is asked before the plug-in is loaded.
int cuDriverGetVersion(int* version);
int cuDriverGetVersion(int* version) {
  *version = DRIVER_VERSION;
  return 0;
}
