namespace heddle {
const char* version() { return "0.1.0"; }
}  // namespace heddle
